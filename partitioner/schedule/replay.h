// What is in flight on a rank while it works through its list: saved activations of stages,
// boundary tensors.
//
// The verifier's coarse bound by stage; simulate/memory_model.h counts block by block. Pure
// function, any thread.
#pragma once

#include <cstddef>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

struct InFlightPeak {
  Bytes bytes;
  size_t index = 0;  // in the rank's list: where the peak is first reached
};

// Saved bytes of a stage count per sample from F to B (I and W: to W). A received message counts
// from R until the last action that uses it, a message to send from the action that computed it
// until its S. `schedule` is sound otherwise.
InFlightPeak replay_in_flight(const Flow& flow, const Schedule& schedule, int rank,
                              const std::vector<Bytes>& saved_bytes_of_stage,
                              const std::vector<int64_t>& micro_batch_sizes);

}  // namespace stagecraft
