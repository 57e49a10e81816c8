// The splits that the known programs would make of a graph, as placements that can be simulated.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
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
// These methods know one kind of device: `costs` is its table. Throws ConfigError (3) for fewer
// blocks that run than stages.
std::vector<Baseline> block_order_baselines(const BlockGraph& graph, const CostTable& costs,
                                            int stages);

// The least largest stage, whatever memory it takes: not over cuts of one order but over chains of
// down-sets of the solver's units (docs/search.md), so that parallel branches can be split side by
// side; the time of a stage is that of its own rank's device. Exact but for replicated blocks,
// whose time is left out. Throws as `down_sets` does, and ConfigError (3) for fewer units than
// stages.
Baseline branch_baseline(const BlockGraph& graph, const ClusterCosts& costs, int stages);

}  // namespace stagecraft
