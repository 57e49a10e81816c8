// One optimizer step as a trace: a process for each rank with a row for what it computes and a row
// for each rank it sends to or receives from.
//
// Whoever timed the actions of a schedule, the simulator or a run, gets the same picture. Pure
// function, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/simulator.h"
#include "partitioner/trace/trace.h"

namespace stagecraft {

// `actions`: at most one entry for each action of the schedule, in any order; a message's times are
// those of its way through the link. `rank_names`: by rank, "rank 0, rtx3090". Arrows lead from
// sends to receives where both are there. Throws InternalError for an action that is not in the
// schedule.
Trace trace_of_step(const Schedule& schedule, const std::vector<TimedAction>& actions,
                    const std::vector<std::string>& rank_names);

}  // namespace stagecraft
