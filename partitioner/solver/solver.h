// Splits a graph into stages: the exact best bottleneck over down-sets of glued units, under every
// device's memory cap.
//
// Pure function of its inputs, deterministic for any number of threads. What is proven, and how:
// docs/search.md.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

// A unit is what the search does not split: a block with its zero convolution, hint and time
// embeddings with a neighbour. A sum is a unit of its own that *follows*: it is never searched but
// runs where the later of its producers does (docs/search.md). Every split of the units that are
// searched into nested down-sets is a valid placement.
struct Units {
  std::vector<std::vector<int>> blocks;  // block indices, ascending; units in topological order
  std::vector<bool> follows;             // by unit
  std::vector<int>
      replicated;  // blocks in no unit: frozen time embeddings, cheaper to run again than to send
};
Units glue(const BlockGraph& graph);

struct SolverOptions {
  int stages = 0;  // 0: one per device
  std::string schedule = "1f1b";
  std::vector<Bytes> memory_caps;  // per rank; empty: the device's memory
  int64_t batch = 4, micro_batch = 1;
};

struct Solution {
  Placement placement;
  int64_t down_sets = 0;
  Nanos bottleneck;  // largest forward + backward time of a stage
  // No split over units with a bottleneck below this fits the caps; equal to `bottleneck` when the
  // optimum is proven (always, unless more than `kMaxValidations` better-looking splits were
  // refused by the memory model at the very edge of a cap).
  Nanos proven_bound;
  std::vector<RankMemory> memory;
  SimulatedStep step;
};
inline constexpr int kMaxValidations = 400;

// Throws ResourceError (13) when no split fits: which stage, which block, how many MiB over, and
// what would make it fit (smaller micro-batch, more stages, half precision, larger cap), tried out,
// not guessed. ConfigError for options that make no sense (more stages than devices, caps for
// another number of ranks, devices of more than one kind: those of one cluster may differ in
// memory, not in speed).
Solution solve(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
               const SolverOptions& options);

}  // namespace stagecraft
