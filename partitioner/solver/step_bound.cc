#include "partitioner/solver/step_bound.h"

namespace stagecraft {

Pace Pace::of(const std::vector<int64_t>& sizes, int64_t table_micro_batch) {
  return {.count = static_cast<int64_t>(sizes.size()),
          .first = sizes.front(),
          .last = sizes.back(),
          .table_micro_batch = table_micro_batch};
}

StageWork stage_work(const Pace& pace, int64_t in_flight, int64_t forward, int64_t backward,
                     bool has_backward) {
  StageWork work{.first_forward = pace.first_of(forward),
                 .last_forward = pace.last_of(forward),
                 .has_backward = has_backward};
  const int64_t turns = pace.count - in_flight;  // forwards with a backward before them
  if (has_backward) {
    work.first_backward = pace.first_of(backward);
    work.last_backward = pace.last_of(backward);
    work.after_first = pace.all_of(backward) - work.first_backward;
    // Forwards of micro-batches K to m - 1, the last of them may be smaller.
    if (turns > 0) work.after_first += (turns - 1) * work.first_forward + work.last_forward;
  }
  work.all = pace.all_of(forward) + (has_backward ? pace.all_of(backward) : 0);
  work.until_last = (pace.count - 1) * work.first_forward + turns * work.first_backward;
  return work;
}

}  // namespace stagecraft
