// The unit-cost clock behind generators and message insertion: forward 1, backward 2, everything
// else 1.
//
// Costs are strictly positive, so along every dependency start times strictly increase; the proof
// in docs/schedule.md rests on that. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

int64_t unit_cost(ActionKind kind);

// When each compute action was finished, for looking up what others need.
class EndTimes {
 public:
  EndTimes(int stages, int micro_batches);
  static constexpr int64_t kUnknown = -1;
  // End of the action that provides what `needed` provides (B also provides I and W), or kUnknown.
  int64_t of(const Action& needed) const;
  void set(const Action& done, int64_t end);

 private:
  int64_t& slot(ActionKind kind, const Action& action);
  int micro_batches_;
  std::vector<int64_t> times_;
};

// Latest end among what `action` needs, or kUnknown while one of them has not ended.
int64_t ready_time(const Flow& flow, const EndTimes& ends, const Action& action);

struct OrderTimes {
  std::vector<std::vector<int64_t>> start;  // per rank and index
  std::vector<std::vector<int64_t>> end;
};
// Runs a compute order, messages taking no time. Throws ConfigError with the wait-for cycle, or
// with the action that is in no list.
OrderTimes time_order(const Flow& flow, const std::vector<std::vector<Action>>& order,
                      int micro_batches);

}  // namespace stagecraft
