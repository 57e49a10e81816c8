// Cost tables and clusters with round numbers.
#pragma once

#include <cstdint>

#include "partitioner/cost/cost_table.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"
#include "tests/support/random_graph.h"

namespace stagecraft::testing {

// Every block: forward 10, input gradients 8, weight gradients 12 ns, nothing saved. Micro-batch of
// one sample.
inline CostTable uniform_costs(const BlockGraph& graph) {
  CostTable table;
  table.made_by = "made up";
  table.precision = "fp32";
  table.micro_batch = 1;
  for (const Block& block : graph.blocks) {
    BlockCost cost;
    cost.forward.median = {10};
    cost.backward_input.median = {8};
    cost.backward_weight.median = {12};
    cost.keeps_input.assign(block.inputs.size(), false);
    table.blocks[block.name] = cost;
  }
  return table;
}

// Different numbers for every block, keeps at random.
inline CostTable random_costs(const BlockGraph& graph, uint64_t seed) {
  Dice dice(seed ^ 0xc0575u);
  CostTable table = uniform_costs(graph);
  table.micro_batch = 2;
  for (const Block& block : graph.blocks) {
    BlockCost& cost = table.blocks[block.name];
    cost.forward.median = {1 + dice.below(100)};
    cost.backward_input.median = {1 + dice.below(100)};
    cost.backward_weight.median = {1 + dice.below(100)};
    cost.saved_internal = {dice.below(1000)};
    cost.workspace_forward = {dice.below(500)};
    cost.workspace_backward = {dice.below(500)};
    cost.keeps_output = dice.percent(40);
    for (size_t i = 0; i < block.inputs.size(); ++i) cost.keeps_input[i] = dice.percent(50);
  }
  return table;
}

inline Cluster plain_cluster(int ranks, double bandwidth = 1e18, Nanos latency = {}) {
  Cluster cluster;
  cluster.devices.resize(ranks);
  cluster.link.bandwidth = bandwidth;
  cluster.link.latency = latency;
  return cluster;
}

}  // namespace stagecraft::testing
