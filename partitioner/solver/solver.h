// Splits a graph into stages: the exact best bottleneck over down-sets of glued units, under every device's memory cap.
//
// Pure function of its inputs, deterministic for any number of threads.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

// A unit is what the search does not split: a block with its zero convolution, a sum with the later of its producers,
// hint and time embeddings with a neighbour (docs/search.md).
struct Units {
  std::vector<std::vector<int>> blocks;  // block indices, ascending; units in topological order
};
Units glue(const BlockGraph& graph);
int64_t count_down_sets(const BlockGraph& graph, const Units& units);

struct SolverOptions {
  int stages = 0;                       // 0: one per device
  std::string schedule = "1f1b";
  std::vector<Bytes> memory_caps;       // per rank; empty: the device's memory
  int64_t batch = 4, micro_batch = 1;
};

struct Solution {
  Placement placement;
  int64_t down_sets = 0;
  Nanos bottleneck;                     // largest forward + backward time of a stage, proven minimal under the caps
  std::vector<RankMemory> memory;
  SimulatedStep step;
};

// Throws ResourceError (13) when no split fits: which stage, which block, how many MiB over, and what would make it fit
// (smaller micro-batch, more stages, half precision, larger cap), tried out, not guessed.
Solution solve(const BlockGraph& graph, const CostTable& costs, const Cluster& cluster,
               const SolverOptions& options);

}  // namespace stagecraft
