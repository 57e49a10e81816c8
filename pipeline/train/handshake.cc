#include "pipeline/train/handshake.h"

#include <fmt/format.h>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr char kEndOfField = '\n';

std::string encode(const HandshakeFacts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) text += name + '=' + value + kEndOfField;
  return text;
}

std::vector<std::string> fields(const std::string& text) {
  std::vector<std::string> result;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(kEndOfField, at);
    result.push_back(text.substr(at, end - at));
    if (end == std::string::npos) break;
    at = end + 1;
  }
  return result;
}

}  // namespace

void compare_with_all_ranks(const HandshakeFacts& facts, ControlChannel& control) {
  const auto texts = control.all_gather("handshake", encode(facts));
  const auto expected = fields(texts[0]);
  for (size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto found = fields(texts[rank]);
    for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
      const std::string ours = i < expected.size() ? expected[i] : "nothing";
      const std::string theirs = i < found.size() ? found[i] : "nothing";
      if (ours == theirs) continue;
      throw ConfigError(
          fmt::format("rank {} has {} where rank 0 has {}: start all ranks with the same plan, "
                      "weights and options",
                      rank, theirs, ours),
          ExitCode::kPlanMismatch);
    }
  }
}

}  // namespace stagecraft
