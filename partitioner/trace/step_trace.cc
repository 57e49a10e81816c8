#include "partitioner/trace/step_trace.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

const char* category_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackwardInput:
      return "backward, inputs";
    case ActionKind::kBackwardWeight:
      return "backward, weights";
    case ActionKind::kBackward:
      return "backward";
    case ActionKind::kSend:
      return "send";
    case ActionKind::kReceive:
      return "receive";
    case ActionKind::kReduce:
      return "reduce";
    case ActionKind::kStep:
      return "optimizer step";
  }
  throw InternalError("unknown kind of action");
}

// Rows of one rank by what stands on them: the name of a row is its key.
class Rows {
 public:
  Rows(TraceProcess& process) : process_(process) { row("compute"); }
  int row(const std::string& name) {
    const auto [entry, is_new] = rows_.try_emplace(name, static_cast<int>(rows_.size()));
    if (is_new) process_.tracks.push_back(name);
    return entry->second;
  }

 private:
  TraceProcess& process_;
  std::map<std::string, int> rows_;
};

}  // namespace

Trace trace_of_step(const Schedule& schedule, const std::vector<TimedAction>& actions,
                    const std::vector<std::string>& rank_names) {
  check(rank_names.size() == schedule.ranks.size(), "a trace needs a name for every rank");
  Trace trace;
  for (const std::string& name : rank_names)
    trace.processes.push_back({.name = name, .tracks = {}});
  std::vector<Rows> rows(trace.processes.begin(), trace.processes.end());
  std::map<int, size_t> sends, receives;  // events by message
  for (const TimedAction& timed : actions) {
    const auto rank = static_cast<size_t>(timed.rank), index = static_cast<size_t>(timed.index);
    check(rank < schedule.ranks.size() && index < schedule.ranks[rank].size(),
          "a timed action is not in the schedule");
    const Action& action = schedule.ranks[rank][index];
    TraceEvent event{.name = to_string(action),
                     .category = category_of(action.kind),
                     .process = timed.rank,
                     .track = 0,
                     .start = timed.start,
                     .duration = timed.end - timed.start,
                     .arguments = {}};
    if (is_message(action)) {
      const Message& message = schedule.messages.at(static_cast<size_t>(action.message));
      const bool is_send = action.kind == ActionKind::kSend;
      event.track = rows[rank].row(is_send ? fmt::format("to rank {}", message.dst_rank)
                                           : fmt::format("from rank {}", message.src_rank));
      event.arguments = {{"bytes", message.bytes.count},
                         {"from stage", message.src_stage},
                         {"to stage", message.dst_stage},
                         {"micro-batch", message.micro_batch}};
      (is_send ? sends : receives)[action.message] = trace.events.size();
    } else if (is_compute(action)) {
      event.arguments = {{"stage", action.stage}, {"micro-batch", action.micro_batch}};
    }
    trace.events.push_back(std::move(event));
  }
  for (const auto& [message, from] : sends) {
    if (const auto to = receives.find(message); to != receives.end()) {
      trace.arrows.push_back({.from = from, .to = to->second});
    }
  }
  return trace;
}

}  // namespace stagecraft
