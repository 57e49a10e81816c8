// Parts of the search that the oracle sees only through its results.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "partitioner/solver/chain_steps.h"
#include "partitioner/solver/chain_walk.h"
#include "partitioner/solver/prefix_clock.h"
#include "partitioner/solver/refine.h"
#include "partitioner/solver/target.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

// Any stages, on any ranks; no edges when the walk through the down-sets ends too early.
Chain random_chain(const StageTable& table, int stages, testing::Dice& dice) {
  Chain chain;
  int node = 0;
  for (int s = 0; s < stages; ++s) {
    const int first = table.first_edge(node), ways = table.end_edge(node) - first;
    if (ways == 0) return {};
    const int e = s + 1 == stages ? table.find_edge(node, table.nodes() - 1)
                                  : first + dice.below(std::min(ways, 4));
    if (e < 0) return {};
    chain.edges.push_back(e);
    chain.ranks.push_back(s);
    node = table.edge(e).to;
  }
  for (int s = stages - 1; s > 0; --s) std::swap(chain.ranks[s], chain.ranks[dice.below(s + 1)]);
  return chain;
}

bool is_line(const StageTable& table, const Chain& chain) {
  int last_with_gradient = -1;
  for (size_t s = 0; s < chain.edges.size(); ++s) {
    const int e = chain.edges[s];
    if (s > 0 && !table.feeds(chain.edges[s - 1], e)) return false;
    if (!table.has_backward(e)) continue;
    if (last_with_gradient >= 0 && !table.gets_gradient(chain.edges[last_with_gradient], e))
      return false;
    last_with_gradient = static_cast<int>(s);
  }
  return true;
}

testing::PlanningProblem search_problem(uint64_t seed) {
  return testing::random_problem(seed, {.most_blocks = 9,
                                        .most_stages = 5,
                                        .unequal_devices = seed % 3 == 0,
                                        .slow_links = seed % 2 == 0});
}

TEST(PrefixClock, NoChainThatBeginsSoIsShorter) {
  int lines = 0, branched = 0, fast = 0, close = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    testing::PlanningProblem problem = search_problem(seed);
    const StageTable table(problem.graph, problem.costs);
    const int stages = problem.options.stages;
    if (stages < 2 || stages > table.units()) continue;
    SplitTarget target = target_of(table, problem.cluster, problem.options);
    target.relays = seed % 5 < 2;
    const ChainSteps steps(table, target);
    const PrefixClock clock(table, target);
    PrefixClock::Scratch scratch;
    const Pace pace = Pace::of(target.micro_batch_sizes, table.costs().micro_batch());
    testing::Dice dice(seed);
    for (int attempt = 0; attempt < 10; ++attempt) {
      const Chain chain = random_chain(table, stages, dice);
      if (chain.edges.empty()) continue;
      std::vector<int64_t> more(stages, 0);  // what runs again
      for (int s = 0; s < stages; ++s)
        if (table.has_backward(chain.edges[s]) && dice.percent(30)) more[s] = dice.below(20);
      const int64_t step = steps.step(chain, more);
      const bool line = is_line(table, chain);
      ++(line ? lines : branched);
      std::vector<PrefixClock::Stage> prefix;
      for (int s = 0; s < stages; ++s) {
        const int rank = chain.ranks[s];
        const StageCost& cost = table.cost(table.costs().kind_of_rank(rank), chain.edges[s]);
        prefix.push_back({.edge = chain.edges[s],
                          .rank = rank,
                          .work = stage_work(
                              pace, micro_batches_in_flight(target.schedule, s, stages, pace.count),
                              cost.forward, cost.backward + more[s], cost.has_backward)});
        EXPECT_LE(clock.bound(prefix, false, scratch), step) << "seed " << seed << ", stage " << s;
        if (!line) continue;
        EXPECT_LE(clock.bound(prefix, true, scratch), step) << "seed " << seed << ", stage " << s;
      }
      if (seed % 2 == 0) continue;
      ++fast;
      close += clock.bound(prefix, line, scratch) * 10 >= step * 9 ? 1 : 0;
    }
  }
  EXPECT_GT(lines, 200);
  EXPECT_GT(branched, 200);
  // Of whole chains only that is left out how messages wait for each other and for both ends, which
  // is much in problems as small as these.
  std::cout << close << " of " << fast << " bounds of whole chains within 10 %\n";
  EXPECT_GT(close * 5, fast);
}

TEST(ChainWalk, NeverEndsLongerThanItBeganAndIsDecidedByItsSeed) {
  int shorter = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const testing::PlanningProblem problem = search_problem(seed);
    const StageTable table(problem.graph, problem.costs);
    if (problem.options.stages < 2 || problem.options.stages > table.units()) continue;
    const SplitTarget target = target_of(table, problem.cluster, problem.options);
    const ChainSteps steps(table, target);
    const std::vector<int64_t> nothing_more(target.stages(), 0);
    testing::Dice dice(seed);
    const Chain chain = random_chain(table, target.stages(), dice);
    if (chain.edges.empty()) continue;
    std::vector<int> classes;
    for (int r = 0; r < target.stages(); ++r) classes.push_back(table.costs().kind_of_rank(r));
    const ChainWalk walk(table, classes,
                         [&](const Chain& c, int64_t) { return steps.step(c, nothing_more); });
    const TimedChain from{.step = steps.step(chain, nothing_more), .chain = chain};
    const TimedChain best = walk.best_from(from, 200, seed);
    EXPECT_EQ(best, walk.best_from(from, 200, seed));
    EXPECT_LE(best.step, from.step);
    EXPECT_EQ(best.step, steps.step(best.chain, nothing_more));
    shorter += best.step < from.step ? 1 : 0;
  }
  EXPECT_GT(shorter, 20);
}

struct Refined {
  Split before, after;
};
Refined refined(const testing::PlanningProblem& problem, const StageTable& table, Bytes cap,
                uint64_t seed) {
  SplitTarget target = target_of(table, problem.cluster, problem.options);
  testing::Dice dice(seed);
  Chain chain = random_chain(table, target.stages(), dice);
  if (chain.edges.empty()) return {};
  Split split = make_split(table, target, chain);
  for (Device& device : target.cluster.devices) device.memory = split.peak() + cap;
  return {.before = split, .after = refine(table, target, split, {})};
}

TEST(Refine, IsNeverWorseAndStaysValid) {
  int shorter = 0, leaner = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const testing::PlanningProblem problem = search_problem(seed);
    const StageTable table(problem.graph, problem.costs);
    if (problem.options.stages < 2 || problem.options.stages > table.units()) continue;
    const auto [before, after] = refined(problem, table, Bytes{100}, seed);
    if (before.chain.edges.empty()) continue;
    EXPECT_TRUE(placement_faults(problem.graph, after.placement).empty()) << seed;
    EXPECT_LE(after.step.makespan, before.step.makespan) << seed;
    EXPECT_LE(after.peak(), before.peak() + Bytes{100}) << seed;
    const testing::Predicted predicted = testing::predict(problem, after.placement);
    EXPECT_EQ(predicted.step, after.step.makespan) << seed;
    EXPECT_EQ(predicted.memory, after.memory) << seed;
    shorter += after.step.makespan < before.step.makespan ? 1 : 0;
    leaner += after.peak() < before.peak() ? 1 : 0;
  }
  EXPECT_GT(shorter, 20);
  EXPECT_GT(leaner, 20);
}

TEST(Refine, WhatIsFixedStays) {
  testing::PlanningProblem problem{.graph = testing::row_of_blocks(4),
                                   .costs = ClusterCosts(CostTable{}),
                                   .cluster = search_problem(0).cluster,
                                   .options = {.stages = 2, .batch = 8, .micro_batch = 1}};
  CostTable costs = testing::random_costs(problem.graph, 1, 1);
  for (auto& [name, cost] : costs.blocks)
    cost.forward.median = cost.backward_input.median = Nanos{100};
  problem.costs = ClusterCosts(costs);
  problem.cluster.link = {.bandwidth = 1e18, .latency = {}};
  problem.cluster.devices.resize(1);
  problem.cluster.devices.push_back(problem.cluster.devices.front());
  const StageTable table(problem.graph, problem.costs);
  SplitTarget target = target_of(table, problem.cluster, problem.options);
  // Three blocks and one: a block wants to move.
  const int first = table.find_edge(0, 3), second = table.find_edge(3, 4);
  const Split uneven = make_split(table, target, {.edges = {first, second}, .ranks = {0, 1}});
  EXPECT_EQ(refine(table, target, uneven, {}).placement.stage_of_block,
            (std::vector<int>{0, 0, 1, 1}));
  target.fixed = {{problem.graph.find_block("block2"), 0}};
  EXPECT_EQ(refine(table, target, uneven, {}).placement.stage_of_block,
            (std::vector<int>{0, 0, 0, 1}));
}

}  // namespace
}  // namespace stagecraft
