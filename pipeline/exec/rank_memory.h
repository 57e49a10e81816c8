// What a rank holds at the moment of its peak, in the lines of the memory model.
//
// Pure function of what the executor and the tracking allocator saw.
#pragma once

#include "partitioner/simulate/memory_model.h"
#include "pipeline/exec/rank_executor.h"
#include "pipeline/exec/rank_parameters.h"

namespace stagecraft {

// `moment`: of the step whose peak was largest; `peak`: the allocator's. Activations are what no
// other line explains, so that the lines sum to `peak`. Process base and lines that a CPU rank
// cannot tell apart stay 0.
RankMemory memory_at_peak(const RankParameters& parameters, const PeakMemory& moment, Bytes peak);

}  // namespace stagecraft
