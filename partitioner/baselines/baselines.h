// The splits that the known programs would make of a graph, as placements that can be simulated.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"

namespace stagecraft {

struct Baseline {
  std::string name;  // "DeepSpeed parameters"
  std::string how;   // one line: what it evens out
  Placement placement;
};

// Stage s on rank s, nothing replicated, nothing recomputed. The methods see what an nn.Sequential
// of the blocks would show them: the blocks in block position. Cuts of that order are always valid
// placements: edges go forward, and consumers of one value stand in the order in which its gradient
// folds. Blocks without a path to the loss never run; they go with the block before them, for no
// stage can consist of them.
//
// The methods know one kind of device: `costs` is its table. Throws ConfigError (3) for fewer
// blocks that run than stages.
std::vector<Baseline> block_order_baselines(const BlockGraph& graph, const CostTable& costs,
                                            int stages);

}  // namespace stagecraft
