#include "pipeline/dataset/faults.h"

#include <fmt/format.h>

#include <iterator>

#include "partitioner/base/error.h"

namespace stagecraft {
void DataFaults::add(int64_t line, const std::string& message) {
  by_line_.emplace(line, message);
  if (by_line_.size() <= kMostFaults) return;
  by_line_.erase(std::prev(by_line_.end()));
  ++more_;
}

std::string DataFaults::text() const {
  std::string text;
  for (const auto& [line, message] : by_line_) {
    text += fmt::format("{}{}:{}: {}", text.empty() ? "" : "\n", file_, line, message);
  }
  if (more_ > 0) text += fmt::format("\n{}: and {} more faults", file_, more_);
  return text;
}

void DataFaults::throw_if_any() const {
  if (!empty()) throw InputError(ExitCode::kDataInvalid, text());
}

}  // namespace stagecraft
