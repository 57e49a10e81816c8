// Looking up and scaling what a block costs; shared by simulator and memory model.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// The table's entries by block index; nullptr for blocks that never run. The pointers live as long
// as the table. Throws ConfigError (exit 4) when a block that runs has no entry, naming it.
std::vector<const BlockCost*> costs_by_block(const BlockGraph& graph, const CostTable& table);

// `count`, which is for the table's micro-batch, for `samples` samples, rounded up.
int64_t scale_to(int64_t count, int64_t samples, const CostTable& table);

}  // namespace stagecraft
