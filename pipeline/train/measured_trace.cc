#include "pipeline/train/measured_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "partitioner/base/files.h"
#include "partitioner/trace/step_trace.h"

namespace stagecraft {
namespace {

Nanos since(std::chrono::steady_clock::time_point zero, std::chrono::steady_clock::time_point t) {
  return {std::chrono::duration_cast<std::chrono::nanoseconds>(t - zero).count()};
}

}  // namespace

std::vector<TimedAction> gather_action_times(const ActionTimes& mine, LoopControl& control) {
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()),
                               mine.size() * sizeof(ActionTime));
  const auto texts = control.gather("times of actions", bytes);
  std::vector<ActionTimes> ranks;
  auto zero = std::chrono::steady_clock::time_point::max();
  for (const std::string& text : texts) {
    check(text.size() % sizeof(ActionTime) == 0, "a rank's times have a wrong size");
    ActionTimes& times = ranks.emplace_back(text.size() / sizeof(ActionTime));
    if (!text.empty()) std::memcpy(times.data(), text.data(), text.size());
    for (const ActionTime& time : times) zero = std::min(zero, time.start);
  }
  std::vector<TimedAction> actions;
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t i = 0; i < ranks[r].size(); ++i) {
      actions.push_back({.rank = static_cast<int>(r),
                         .index = static_cast<int>(i),
                         .start = since(zero, ranks[r][i].start),
                         .end = since(zero, ranks[r][i].end)});
    }
  }
  return actions;
}

void write_measured_trace(const Plan& plan, const Schedule& schedule,
                          const std::vector<TimedAction>& actions, const std::string& path) {
  std::vector<std::string> names;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    names.push_back(r < plan.ranks.size() ? fmt::format("rank {}, {}", r, plan.ranks[r].device)
                                          : fmt::format("rank {}", r));
  }
  write_file_atomically(path, to_json(trace_of_step(schedule, actions, names)));
}

}  // namespace stagecraft
