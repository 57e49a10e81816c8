#include "pipeline/comm/describe.h"

#include <fmt/format.h>

namespace stagecraft {

std::string describe_message(MessageTag tag, int64_t bytes) {
  if (tag.step < 0) return fmt::format("message {} ({} bytes)", tag.message, bytes);
  return fmt::format("message {} of step {} ({} bytes)", tag.message, tag.step, bytes);
}

std::string describe_duration(std::chrono::milliseconds duration) {
  if (duration.count() < 1000) return fmt::format("{} ms", duration.count());
  return fmt::format("{:.1f} s", static_cast<double>(duration.count()) / 1000.0);
}

std::string describe_mismatch(int sender, int receiver, const std::string& sent,
                              const std::string& expected) {
  return fmt::format(
      "rank {} sent {} to rank {}, which expected {}: the ranks run different orders, use one plan "
      "for all of them",
      sender, sent, receiver, expected);
}

}  // namespace stagecraft
