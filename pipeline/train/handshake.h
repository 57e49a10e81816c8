// Before step 0 all ranks compare what they are about to do; a difference is an error that names
// it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "partitioner/plan/plan.h"
#include "pipeline/comm/communicator.h"

namespace stagecraft {

// Named facts that must be equal on all ranks, in a fixed order: ("plan", hash), ("precision",
// "fp32"), ...
using HandshakeFacts = std::vector<std::pair<std::string, std::string>>;

// What every run of a plan compares. Throws ConfigError (exit 4) when the plan is for another
// number of ranks.
HandshakeFacts facts_of_plan(const Plan& plan, const BlockGraph& graph, const Schedule& schedule,
                             int ranks);

// Throws ConfigError (exit 4) on every rank when one rank differs from rank 0: fact, rank, both
// values. Blocks.
void compare_with_all_ranks(const HandshakeFacts& facts, ControlChannel& control);

}  // namespace stagecraft
