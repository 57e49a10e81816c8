// Small random planning problems: a graph with branches and sums, random costs, caps at the very
// edge of what fits.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "partitioner/schedule/schedule.h"
#include "partitioner/solver/solver.h"
#include "tests/support/random_graph.h"
#include "tests/support/toy_graph.h"

namespace stagecraft::testing {

// Two branches whose blocks meet in sums, then a chain that reads them, as ControlNet and UNet do.
inline BlockGraph random_branches(uint64_t seed) {
  Dice dice(seed);
  ToyGraph toy;
  const int left = 1 + dice.below(2), right = 1 + dice.below(2), tail = 1 + dice.below(2);
  const bool time = dice.percent(50);
  if (time) toy.add("time", {"input.t"}, false);
  const auto inputs = [&](std::vector<std::string> names) {
    if (time && dice.percent(60)) names.push_back("time");
    return names;
  };
  std::vector<std::string> lefts, rights, sums;
  for (int i = 0; i < left; ++i) {
    toy.add("left" + std::to_string(i), inputs({i == 0 ? "input.x" : lefts.back()}),
            dice.percent(20));
    lefts.push_back("left" + std::to_string(i));
  }
  for (int i = 0; i < right; ++i) {
    toy.add("right" + std::to_string(i), inputs({i == 0 ? "input.y" : rights.back()}),
            dice.percent(70));
    rights.push_back("right" + std::to_string(i));
  }
  for (int i = 0; i < std::min(left, right); ++i) {
    toy.add("sum" + std::to_string(i), {lefts[i], rights[i]}, false);
    sums.push_back("sum" + std::to_string(i));
  }
  std::string hidden = sums.back();
  if (left > right) {
    toy.add("join", {hidden, lefts.back()}, false);
    hidden = "join";
  } else if (right > left) {
    toy.add("join", {hidden, rights.back()}, false);
    hidden = "join";
  }
  for (int i = 0; i < tail; ++i) {
    std::vector<std::string> names{hidden};
    if (i == 0 && sums.size() > 1) names.push_back(sums.front());
    toy.add("tail" + std::to_string(i), inputs(names), dice.percent(40));
    hidden = "tail" + std::to_string(i);
  }
  BlockGraph graph = toy.build(hidden);
  for (Block& block : graph.blocks) {
    if (block.name == "time") block.kind = BlockKind::kTimeEmbedding;
    if (!block.name.starts_with("sum")) continue;
    block.kind = BlockKind::kSum;  // without the linear layer behind the addition
    block.params.clear();
    block.ops.pop_back();
    block.tensors.pop_back();
  }
  derive_states(graph);
  return graph;
}

inline CostTable random_costs(const BlockGraph& graph, uint64_t seed, int64_t micro_batch) {
  Dice dice(seed);
  CostTable table{.made_by = "analytic",
                  .machine = "random",
                  .device = "random",
                  .precision = dice.percent(50) ? "fp32" : "fp16",
                  .width = graph.width,
                  .height = graph.height,
                  .micro_batch = micro_batch,
                  .graph_hash = graph_hash(graph),
                  .blocks = {}};
  for (const Block& block : graph.blocks) {
    BlockCost cost;
    cost.forward.median = Nanos{1 + dice.below(12)};
    const bool inputs = block.state == BlockState::kFI || block.state == BlockState::kFIW;
    if (inputs) cost.backward_input.median = Nanos{1 + dice.below(12)};
    if (block.trainable) cost.backward_weight.median = Nanos{1 + dice.below(6)};
    for (size_t i = 0; i < block.inputs.size(); ++i)
      cost.keeps_input.push_back(block.state != BlockState::kF && dice.percent(50));
    if (block.state != BlockState::kF) {
      cost.keeps_output = dice.percent(30);
      cost.saved_internal = Bytes{dice.below(800)};
      cost.workspace_backward = Bytes{dice.below(600)};
    }
    cost.workspace_forward = Bytes{dice.below(600)};
    table.blocks[block.name] = cost;
  }
  return table;
}

struct PlanningProblem {
  BlockGraph graph;
  CostTable costs;
  Cluster cluster;
  SolverOptions options;
};

inline PlanningProblem random_problem(uint64_t seed) {
  Dice dice(seed + 1'000'000);
  PlanningProblem problem;
  problem.graph =
      dice.percent(50) ? random_branches(seed) : random_graph(seed, {.blocks = 3 + dice.below(3)});
  problem.options.stages = 1 + dice.below(3);
  problem.options.schedule = dice.percent(60) ? "1f1b" : "gpipe";
  problem.options.micro_batch = 1 + dice.below(2);
  problem.options.batch = 1 + dice.below(6);
  problem.costs = random_costs(problem.graph, seed, problem.options.micro_batch);
  problem.cluster.name = "random";
  problem.cluster.link = {.bandwidth = 1e9, .latency = Nanos{1}};
  for (int r = 0; r < problem.options.stages; ++r)
    problem.cluster.devices.push_back({.name = "random",
                                       .kind = "cpu",
                                       .memory = Bytes{int64_t{1} << 40},
                                       .op_latency = Nanos{0},
                                       .base = Bytes{100},
                                       .comm_buffer_per_peer = Bytes{dice.below(50)},
                                       .slack_fraction = dice.below(3) * 0.05});
  return problem;
}

// Forward and backward of a stage for one micro-batch of the table's size; nothing is recomputed.
inline int64_t stage_time(const PlanningProblem& problem, const Placement& placement, int stage) {
  int64_t time = 0;
  for (int b : placement.blocks_run_by(problem.graph, stage)) {
    const Block& block = problem.graph.blocks[b];
    const BlockCost& cost = problem.costs.blocks.at(block.name);
    time += cost.forward.median.count;
    if (block.state == BlockState::kF) continue;
    time += cost.backward_input.median.count + cost.backward_weight.median.count;
  }
  return time;
}

inline std::vector<RankMemory> memory_of(const PlanningProblem& problem,
                                         const Placement& placement) {
  const std::vector<int64_t> sizes =
      micro_batch_sizes(problem.options.batch, problem.options.micro_batch);
  const auto order = generate_order(problem.options.schedule, problem.graph, placement,
                                    static_cast<int>(sizes.size()));
  return predict_memory(problem.graph, placement, ClusterCosts(problem.costs),
                        problem.cluster.devices,
                        insert_messages(problem.graph, placement, order, sizes), sizes);
}

}  // namespace stagecraft::testing
