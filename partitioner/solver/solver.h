// Splits a graph into stages: the shortest simulated step over down-sets of glued units, under
// every device's memory cap, then refined block by block.
//
// Pure function of its inputs, deterministic for any number of threads unless a time limit is
// given. What is proven, and how: docs/search.md.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"
#include "partitioner/solver/step_search.h"
#include "partitioner/solver/units.h"

namespace stagecraft {

struct SolverOptions {
  int stages = 0;  // 0: one per device
  std::string schedule = "1f1b";
  std::vector<Bytes> memory_caps{};  // per rank; empty: the device's memory
  int64_t batch = 4, micro_batch = 1;
  bool may_recompute = true;  // blocks may run forward again where memory asks for it
  bool any_order = true;      // unequal devices may take the stages in any order
  std::vector<std::pair<int, int>> fixed{};  // block, rank: where it must run
  SearchLimits limits{};
};

struct Solution {
  Placement placement;
  Schedule schedule;
  int64_t down_sets = 0;
  Nanos bottleneck;  // the longest that a rank computes for one micro-batch, on average
  SimulatedStep step;
  // No split of whole units that fits the caps by the memory model has a shorter step; the step
  // itself when that is proven, or when single blocks that moved made it shorter still. (With more
  // unequal devices than StageOptions tells apart: in the orders that were looked at.)
  Nanos proven_bound;
  std::vector<RankMemory> memory;

  Bytes peak() const;  // of the fullest rank
  // 1 - proven_bound / step: no split over units is shorter by more than this part. 0 when proven.
  double gap() const;
};

// Throws ResourceError (13) when no split fits: which rank, which block, how many MiB over, and
// what would make it fit (recompute, smaller micro-batch, more stages, half precision, larger cap),
// tried out, not guessed. ConfigError for options that make no sense (more stages than devices,
// caps for another number of ranks).
Solution solve(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
               const SolverOptions& options);
// For whoever solves the same graph several times: nothing where `solve` explains why nothing fits.
std::optional<Solution> try_solve(const StageTable& table, const Cluster& cluster,
                                  const SolverOptions& options);

}  // namespace stagecraft
