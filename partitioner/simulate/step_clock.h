// The event simulation of a schedule, on numbers alone: who waits for whom is worked out once, then
// any durations can be tried.
//
// start(action) = max(end of the rank's previous action, arrival of what it needs); a message
// starts when both sides have reached it and the one before it on its directed pair is through, and
// overlaps compute. An S waits while kSendsInFlight sends are under way, the step for all of them;
// the step itself takes no time. Immutable after construction and independent of its arguments; any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/graph/placement.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

class StepClock {
 public:
  // Throws InternalError when the schedule lacks a message.
  StepClock(const Flow& flow, const Placement& placement, const Schedule& schedule);

  // Actions are numbered through the ranks' lists, rank 0 first; messages as in the schedule.
  struct Times {
    std::vector<int64_t> start, end;  // by action; of a message when it is on its way
    std::vector<int64_t> busy;        // by rank: computing
    int64_t makespan = 0;
  };
  // `compute[action]` and `transfer[message]`: ns. Throws InternalError for a schedule that cannot
  // run.
  void run(const std::vector<int64_t>& compute, const std::vector<int64_t>& transfer,
           Times& times) const;

  int actions() const { return static_cast<int>(items_.size()); }

 private:
  enum class Kind { kCompute, kSend, kReceive, kStep };
  struct Item {
    Kind kind = Kind::kCompute;
    int message = -1;                  // of S and R
    int first_need = 0, end_need = 0;  // in needs_: messages that a compute action waits for
  };

  std::vector<Item> items_;
  std::vector<int> first_of_rank_;  // one more than ranks
  std::vector<int> needs_;
  std::vector<int> before_on_pair_;  // by message: the one before it on its directed pair, or -1
};

}  // namespace stagecraft
