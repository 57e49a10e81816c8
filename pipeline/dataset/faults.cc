#include "pipeline/dataset/faults.h"

#include <fmt/format.h>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr size_t kMostFaultsShown = 1000;

}  // namespace

void DataFaults::add(int64_t line, const std::string& message) { by_line_.emplace(line, message); }

std::string DataFaults::text() const {
  std::string text;
  size_t shown = 0;
  for (const auto& [line, message] : by_line_) {
    if (!text.empty()) text += '\n';
    if (shown++ == kMostFaultsShown) {
      text += fmt::format("{}: and {} more faults", file_, by_line_.size() - kMostFaultsShown);
      break;
    }
    text += fmt::format("{}:{}: {}", file_, line, message);
  }
  return text;
}

void DataFaults::throw_if_any() const {
  if (!empty()) throw InputError(ExitCode::kDataInvalid, text());
}

}  // namespace stagecraft
