// Small random planning problems: a graph with branches and sums, random costs, caps at the very
// edge of what fits.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"
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

// "block0", "block1", ... in a row, all of them trained.
inline BlockGraph row_of_blocks(int count) {
  ToyGraph toy;
  std::string hidden = "input.x";
  for (int i = 0; i < count; ++i) {
    toy.add("block" + std::to_string(i), {hidden}, true);
    hidden = "block" + std::to_string(i);
  }
  return toy.build(hidden);
}

struct PlanningProblem {
  BlockGraph graph;
  ClusterCosts costs;
  Cluster cluster;
  SolverOptions options;
};

// The same blocks on another kind of device.
inline CostTable on_another_device(CostTable table, uint64_t seed) {
  Dice dice(seed ^ 0xdecafu);
  for (auto& [name, cost] : table.blocks)
    for (Timing* t : {&cost.forward, &cost.backward_input, &cost.backward_weight})
      if (t->median.count > 0) t->median.count = t->median.count * (50 + dice.below(150)) / 100 + 1;
  table.device = "other";
  return table;
}

struct RandomProblemOptions {
  int most_blocks = 5;  // of the half of the graphs that are not made of branches
  int most_stages = 3;
  bool unequal_devices = false;
  bool slow_links = false;
};

inline PlanningProblem random_problem(uint64_t seed, const RandomProblemOptions& wish = {}) {
  Dice dice(seed + 1'000'000);
  BlockGraph graph = dice.percent(50)
                         ? random_branches(seed)
                         : random_graph(seed, {.blocks = 3 + dice.below(wish.most_blocks - 2)});
  SolverOptions options;
  options.stages = 1 + dice.below(wish.most_stages);
  options.schedule = dice.percent(60) ? "1f1b" : "gpipe";
  options.micro_batch = 1 + dice.below(2);
  options.batch = 1 + dice.below(6);
  Cluster cluster;
  cluster.name = "random";
  cluster.link = {.bandwidth = 1e9, .latency = Nanos{1}};
  if (wish.slow_links)
    cluster.link = {.bandwidth = 2e10 / (1 + dice.below(40)), .latency = Nanos{dice.below(9)}};
  std::vector<int> kinds;
  for (int r = 0; r < options.stages; ++r) {
    kinds.push_back(wish.unequal_devices ? dice.below(2) : 0);
    cluster.devices.push_back({.name = kinds.back() == 0 ? "random" : "other",
                               .kind = "cpu",
                               .memory = Bytes{int64_t{1} << 40},
                               .op_latency = Nanos{0},
                               .base = Bytes{100},
                               .comm_buffer_per_peer = Bytes{dice.below(50)},
                               .slack_fraction = dice.below(3) * 0.05});
  }
  if (wish.slow_links && dice.percent(50))  // some pairs are linked better, one way or both
    for (int from = 0; from < options.stages; ++from)
      for (int to = 0; to < options.stages; ++to)
        if (from != to && dice.percent(40))
          cluster.exceptions[{from, to}] = {.bandwidth = 1e11, .latency = Nanos{0}};
  const CostTable table = random_costs(graph, seed, options.micro_batch);
  ClusterCosts costs = wish.unequal_devices
                           ? ClusterCosts({table, on_another_device(table, seed)}, kinds)
                           : ClusterCosts(table);
  return {.graph = std::move(graph),
          .costs = std::move(costs),
          .cluster = std::move(cluster),
          .options = std::move(options)};
}

struct Predicted {
  Nanos step;
  std::vector<RankMemory> memory;

  bool fits(const std::vector<Bytes>& caps) const {
    for (size_t r = 0; r < memory.size(); ++r)
      if (memory[r].total() > caps[r]) return false;
    return true;
  }
};

// What the models say of a placement.
inline Predicted predict(const PlanningProblem& problem, const Placement& placement) {
  const std::vector<int64_t> sizes =
      micro_batch_sizes(problem.options.batch, problem.options.micro_batch);
  const Schedule schedule =
      make_schedule(problem.options.schedule, problem.graph, placement, sizes);
  return {
      .step = simulate(problem.graph, placement, problem.costs, problem.cluster, schedule, sizes)
                  .makespan,
      .memory = predict_memory(problem.graph, placement, problem.costs, problem.cluster.devices,
                               schedule, sizes)};
}

// Every valid placement of whole units: a stage for every unit, stage s on rank s.
inline std::vector<Placement> every_placement(const PlanningProblem& problem) {
  const Units units = glue(problem.graph);
  const int stages = problem.options.stages;
  std::vector<Placement> all;
  int64_t combinations = 1;
  for (size_t i = 0; i < units.blocks.size(); ++i) combinations *= stages;
  for (int64_t c = 0; c < combinations; ++c) {
    Placement placement;
    placement.stage_of_block.assign(problem.graph.blocks.size(), -1);
    placement.recompute.assign(problem.graph.blocks.size(), false);
    for (int s = 0; s < stages; ++s) placement.rank_of_stage.push_back(s);
    int64_t rest = c;
    for (const std::vector<int>& unit : units.blocks) {
      for (int b : unit) placement.stage_of_block[b] = static_cast<int>(rest % stages);
      rest /= stages;
    }
    if (placement_faults(problem.graph, placement).empty()) all.push_back(std::move(placement));
  }
  return all;
}

}  // namespace stagecraft::testing
