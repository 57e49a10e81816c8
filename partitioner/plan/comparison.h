// The plan beside the splits that the known programs would make of the same blocks, and beside the
// other ways to train the same.
//
// Plain values and pure functions, any thread. Methods: partitioner/baselines; ways:
// docs/alternatives.md.
#pragma once

#include <string>
#include <vector>

#include "partitioner/plan/plan.h"

namespace stagecraft {

// A split simulated under the plan's schedule and micro-batches, on the plan's devices.
struct SplitRow {
  std::string name, how;
  double balance = 1;  // what the slowest rank computes, over the mean
  Nanos step;
  int rank = 0;  // whose memory is nearest to its device's, or the furthest above
  Bytes memory;  // of that rank
  Bytes device_memory;
  bool fits() const { return memory <= device_memory; }
  bool operator==(const SplitRow&) const = default;
};

struct Comparison {
  std::string title;
  std::vector<SplitRow> splits;  // the plan first
  Alternative as_way;            // the plan among the alternatives
  std::vector<Alternative> alternatives;
};

// The plan needs predictions and alternatives. Throws ConfigError (3) for more stages than blocks
// or units, ResourceError for a graph with too many down-sets.
Comparison compare(const Plan& plan, const BlockGraph& graph, const ResolvedPlan& resolved,
                   const ClusterCosts& costs, const Cluster& cluster);

// How the plan stands to the best of the known splits that fit, in one sentence.
std::string advise(const std::vector<SplitRow>& splits);

std::string to_text(const Comparison& comparison);  // several lines, each ended
std::string to_json(const Comparison& comparison);  // one line without an end

}  // namespace stagecraft
