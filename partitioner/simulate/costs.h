// Looking up and scaling what a block costs; shared by simulator and memory model.
//
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// A table's entries by block index; nullptr for blocks that never run. The pointers live as long as
// the table.
using BlockCosts = std::vector<const BlockCost*>;

// Of every kind of device. Throws ConfigError (exit 4) when a block that runs has no entry, naming
// it.
std::vector<BlockCosts> block_costs_by_kind(const BlockGraph& graph, const ClusterCosts& costs);

// `count`, which is for a table's micro-batch, for `samples` samples, rounded up.
int64_t scale_to(int64_t count, int64_t samples, int64_t micro_batch);

}  // namespace stagecraft
