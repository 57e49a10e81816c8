#include "pipeline/train/handshake.h"

#include <fmt/format.h>

#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"

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

std::string message_table_hash(const Schedule& schedule) {
  std::string text;
  for (const Message& message : schedule.messages) {
    text += fmt::format("{}>{} mb {} {} bytes:", message.src_rank, message.dst_rank,
                        message.micro_batch, message.bytes.count);
    for (const MessageItem& item : message.items) text += fmt::format(" {}", item.value);
    text += message.direction == Direction::kForward ? " F\n" : " B\n";
  }
  return sha256_hex(text);
}

}  // namespace

HandshakeFacts facts_of_plan(const Plan& plan, const BlockGraph& graph, const Schedule& schedule,
                             int ranks) {
  if (static_cast<size_t>(ranks) != schedule.ranks.size()) {
    throw ConfigError(
        fmt::format("the plan is for {} ranks, {} were started", schedule.ranks.size(), ranks),
        ExitCode::kPlanMismatch);
  }
  return {{"plan", plan_hash(plan)},
          {"model graph", graph.model + " " + graph_hash(graph)},
          {"message table", message_table_hash(schedule)},
          {"world size", std::to_string(ranks)},
          {"precision", plan.train.precision}};
}

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
