// The front of step time against memory, and what is chosen from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <string>

#include "partitioner/base/error.h"
#include "partitioner/solver/front.h"
#include "partitioner/solver/target.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;
using testing::PlanningProblem;

constexpr int64_t kFrontMiB = 1024 * 1024;

Device roomy_device() {
  return {.name = "d",
          .kind = "cpu",
          .memory = Bytes{1000 * kFrontMiB},
          .op_latency = {},
          .base = {},
          .comm_buffer_per_peer = {}};
}

// Six trainable blocks in a row on two devices; the first takes so long that every cut behind it
// has the same step. They keep 10, 20, ... 60 MiB.
PlanningProblem one_slow_block() {
  BlockGraph graph = testing::row_of_blocks(6);
  CostTable costs = testing::random_costs(graph, 1, 2);
  for (int i = 0; i < 6; ++i) {
    BlockCost cost;
    cost.forward.median = Nanos{i == 0 ? 10'000 : 0};
    cost.keeps_input = {false};
    cost.saved_internal = Bytes{(i + 1) * 10 * kFrontMiB};
    costs.blocks["block" + std::to_string(i)] = cost;
  }
  PlanningProblem problem{.graph = std::move(graph),
                          .costs = ClusterCosts(std::move(costs)),
                          .cluster = {},
                          .options = {.stages = 2, .batch = 2, .micro_batch = 2}};
  problem.cluster.link.bandwidth = 1e18;
  problem.cluster.devices.assign(2, roomy_device());
  return problem;
}

Front front_of(const PlanningProblem& problem, Preference preference,
               std::vector<std::string> schedules = {"1f1b"}) {
  return find_front(problem.graph, problem.cluster,
                    {.costs = {problem.costs},
                     .schedules = std::move(schedules),
                     .options = problem.options,
                     .preference = preference});
}

// Four stages in a row, the last of which reads the first, too.
PlanningProblem row_with_skip(Link far) {
  ToyGraph toy;
  toy.add("a", {"input.x"}, true)
      .add("b", {"a"}, true)
      .add("c", {"b"}, true)
      .add("d", {"c", "a"}, true);
  PlanningProblem problem{.graph = toy.build("d"),
                          .costs = ClusterCosts(CostTable{}),
                          .cluster = {},
                          .options = {.stages = 4, .batch = 4, .micro_batch = 1}};
  CostTable costs = testing::random_costs(problem.graph, 1, 1);
  for (auto& [name, cost] : costs.blocks) cost.forward.median = Nanos{1000};
  problem.costs = ClusterCosts(std::move(costs));
  problem.cluster.name = "row";
  problem.cluster.link = {.bandwidth = 1e12, .latency = Nanos{20}};
  problem.cluster.devices.assign(4, roomy_device());
  for (const auto& pair : {std::pair{0, 3}, {3, 0}}) problem.cluster.exceptions[pair] = far;
  return problem;
}

TEST(SolverFront, RelaysWhereAStraightLinkIsSlow) {
  PlanningProblem problem = row_with_skip({.bandwidth = 1e12, .latency = Nanos{9000}});
  problem.options.any_order = false;
  const Front front = front_of(problem, Preference::kTime);
  const Solution& relayed = front.plans[front.chosen].solution;
  EXPECT_TRUE(relayed.placement.relays);
  EXPECT_EQ(relayed.proven_bound, relayed.step.makespan);
  Placement straight = relayed.placement;
  straight.relays = false;
  const testing::Predicted slow = predict(problem, straight);
  EXPECT_LT(relayed.step.makespan.count * 10, slow.step.count * 9);
  EXPECT_EQ(relayed.step.makespan, predict(problem, relayed.placement).step);

  const PlanningProblem even = row_with_skip({.bandwidth = 1e12, .latency = Nanos{20}});
  const Front usual = front_of(even, Preference::kTime);
  EXPECT_FALSE(usual.plans[usual.chosen].solution.placement.relays);
}

TEST(SolverFront, AmongEquallyShortStepsTakesTheLeanest) {
  PlanningProblem problem = one_slow_block();
  problem.options.may_recompute = false;  // which takes no time here
  const Front front = front_of(problem, Preference::kTime);
  EXPECT_THAT(front.plans[front.chosen].solution.placement.stage_of_block,
              ::testing::ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(SolverFront, NoPlanIsBeatenAndNoneFoundIsLeftOut) {
  int fronts = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    PlanningProblem problem =
        testing::random_problem(seed, {.most_blocks = 6, .unequal_devices = seed % 2 == 0});
    if (testing::every_placement(problem).empty()) continue;
    const Front front = front_of(problem, Preference::kTime, {problem.options.schedule});
    for (size_t i = 1; i < front.plans.size(); ++i) {
      EXPECT_LT(front.plans[i - 1].solution.step.makespan, front.plans[i].solution.step.makespan);
      EXPECT_GT(front.plans[i - 1].solution.peak(), front.plans[i].solution.peak());
    }
    fronts += front.plans.size() > 1 ? 1 : 0;
    // The fastest of all, and nothing that is as fast needs much less.
    EXPECT_EQ(front.plans[0].solution.step.makespan,
              solve(problem.graph, problem.costs, problem.cluster, problem.options).step.makespan);
  }
  EXPECT_GT(fronts, 20);
}

TEST(SolverFront, DoesNotClaimMoreThanTheTimeAllowed) {
  PlanningProblem problem = one_slow_block();
  problem.options.limits.deadline = SearchLimits::Clock::now();
  const Front front = front_of(problem, Preference::kTime);
  ASSERT_EQ(front.plans.size(), 1u);
  EXPECT_EQ(front.reason, "the only plan found in the time given");
}

// Over a slow link one stage is by far the fastest, and last in turn.
TEST(SolverFront, EveryNumberOfStagesIsTriedWhenTheTimeIsOver) {
  PlanningProblem problem = row_with_skip({.bandwidth = 1e12, .latency = Nanos{20}});
  problem.cluster.link = {.bandwidth = 1e12, .latency = Nanos{1'000'000}};
  problem.options.stages = 0;
  problem.options.limits.deadline = SearchLimits::Clock::now();
  const Front front = front_of(problem, Preference::kTime);
  EXPECT_EQ(front.plans[front.chosen].solution.placement.stages(), 1);
  // What is proven holds for all of them.
  problem.options.limits.deadline.reset();
  const Front all = front_of(problem, Preference::kTime);
  EXPECT_LE(front.plans[0].solution.proven_bound, all.plans[0].solution.step.makespan);
}

TEST(SolverFront, ThreadsDoNotMatter) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    PlanningProblem problem =
        testing::random_problem(seed, {.most_blocks = 7, .unequal_devices = true});
    if (testing::every_placement(problem).empty()) continue;
    const Front many = front_of(problem, Preference::kBalanced);
    const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
    const Front single = front_of(problem, Preference::kBalanced);
    ASSERT_EQ(many.plans.size(), single.plans.size()) << "seed " << seed;
    for (size_t i = 0; i < many.plans.size(); ++i)
      EXPECT_EQ(many.plans[i].solution.placement, single.plans[i].solution.placement)
          << "seed " << seed;
  }
}

TEST(SolverFront, ChoosesAsAsked) {
  int differ = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PlanningProblem problem = testing::random_problem(seed, {.most_blocks = 7});
    if (testing::every_placement(problem).empty()) continue;
    const Front fast = front_of(problem, Preference::kTime);
    const Front lean = front_of(problem, Preference::kMemory);
    const Front balanced = front_of(problem, Preference::kBalanced);
    EXPECT_EQ(fast.chosen, 0u);
    EXPECT_EQ(lean.chosen, lean.plans.size() - 1);
    const auto step = [&](size_t i) {
      return static_cast<double>(balanced.plans[i].solution.step.makespan.count);
    };
    EXPECT_LE(step(balanced.chosen), kBalancedSlowdown * step(0));
    if (balanced.chosen + 1 < balanced.plans.size()) {
      EXPECT_GT(step(balanced.chosen + 1), kBalancedSlowdown * step(0));
      ++differ;
    }
    EXPECT_FALSE(balanced.reason.empty());
  }
  EXPECT_GT(differ, 5);
}

TEST(SolverFront, MayUseFewerStagesThanDevices) {
  // One micro-batch: a second stage only waits.
  PlanningProblem problem = one_slow_block();
  problem.options.stages = 0;
  problem.cluster.link = {.bandwidth = 1e6, .latency = Nanos{1000}};
  const Front front = front_of(problem, Preference::kTime);
  EXPECT_EQ(front.plans[front.chosen].solution.placement.stages(), 1);
  EXPECT_GT(front.plans.back().solution.placement.stages(), 1);  // which is leaner
}

TEST(SolverFront, ExplainsWhenNothingFits) {
  PlanningProblem problem = one_slow_block();
  for (Device& device : problem.cluster.devices) device.memory = Bytes{20 * kFrontMiB};
  try {
    front_of(problem, Preference::kTime);
    FAIL() << "a plan was found";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no split in 2 stages fits 2 x 20 MiB"));
  }
}

TEST(SolverFixed, BlocksRunWhereTheyMust) {
  PlanningProblem problem = one_slow_block();
  problem.options.fixed = {{problem.graph.find_block("block1"), 1}};
  const Solution solution = solve(problem.graph, problem.costs, problem.cluster, problem.options);
  EXPECT_THAT(solution.placement.stage_of_block, ::testing::ElementsAre(0, 1, 1, 1, 1, 1));
  problem.options.fixed = {{problem.graph.find_block("block1"), 2}};
  EXPECT_THROW(solve(problem.graph, problem.costs, problem.cluster, problem.options), ConfigError);
}

TEST(SolverFixed, TheFrontKeepsStagesForTheFixedRank) {
  PlanningProblem problem = one_slow_block();
  problem.options.stages = 0;
  problem.options.fixed = {{problem.graph.find_block("block5"), 1}};
  for (const FrontPlan& plan : front_of(problem, Preference::kTime).plans)
    EXPECT_EQ(plan.solution.placement.rank_of_stage[plan.solution.placement.stage_of_block[5]], 1);
  problem.options.fixed.front().second = 2;
  EXPECT_THROW(front_of(problem, Preference::kTime), ConfigError);
}

TEST(SolverFixed, WhatCannotBeIsNotBlamedOnMemory) {
  PlanningProblem problem = one_slow_block();
  problem.options.fixed = {{problem.graph.find_block("block5"), 0},
                           {problem.graph.find_block("block0"), 1}};
  try {
    front_of(problem, Preference::kTime);
    FAIL() << "a plan was found";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no split in 2 stages has block5 on rank 0, block0 on rank 1"));
  }
}

TEST(SolverFixed, BlocksOfOneUnitCannotBeOnTwoRanks) {
  const auto refusal = [](PlanningProblem problem, const char* first, const char* second) {
    problem.options.fixed = {{problem.graph.find_block(first), 0},
                             {problem.graph.find_block(second), 1}};
    try {
      solve(problem.graph, problem.costs, problem.cluster, problem.options);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("a plan was found");
  };
  PlanningProblem problem = one_slow_block();
  EXPECT_EQ(refusal(problem, "block0", "block0"),
            "block block0 is fixed to rank 0 and to rank 1: give one");
  for (const char* name : {"block2", "block4"})  // a sum goes with its consumer
    problem.graph.blocks[problem.graph.find_block(name)].kind = BlockKind::kSum;
  CostTable costs = problem.costs.of_kind(0);
  costs.graph_hash = graph_hash(problem.graph);
  problem.costs = ClusterCosts(costs);
  EXPECT_THAT(refusal(problem, "block2", "block3"),
              HasSubstr("blocks block2 and block3 go together"));
}

// Twelve blocks on one stage that keep something: more than all sets of them are tried.
TEST(SolverLimits, WhatRunsAgainByDensityIsNotCalledProven) {
  PlanningProblem problem = one_slow_block();
  problem.graph = testing::row_of_blocks(12);
  CostTable costs = testing::random_costs(problem.graph, 1, 1);
  for (int i = 0; i < 12; ++i) {
    BlockCost cost;
    cost.forward.median = Nanos{100 + 7 * i};
    cost.keeps_input = {false};
    cost.saved_internal = Bytes{(10 + i * i % 7) * kFrontMiB};
    costs.blocks["block" + std::to_string(i)] = cost;
  }
  problem.costs = ClusterCosts(costs);
  problem.options = {.stages = 1, .batch = 2, .micro_batch = 1};
  problem.cluster.devices.resize(1);
  problem.cluster.devices[0].memory = Bytes{90 * kFrontMiB};
  const Solution solution = solve(problem.graph, problem.costs, problem.cluster, problem.options);
  EXPECT_THAT(solution.placement.recompute, ::testing::Contains(true));
  EXPECT_GT(solution.gap(), 0);
}

TEST(SolverLimits, WhatIsNotProvenIsSaid) {
  PlanningProblem problem = one_slow_block();
  int unproven = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    problem = testing::random_problem(seed, {.most_blocks = 8, .slow_links = true});
    if (testing::every_placement(problem).empty()) continue;
    const StageTable table(problem.graph, problem.costs);
    const SplitTarget target = target_of(table, problem.cluster, problem.options);
    const SearchResult proven = find_split(table, target, {});
    const SearchResult first = find_split(table, target, {.nodes = 0});
    ASSERT_TRUE(proven.best && first.best);
    EXPECT_GE(first.best->step.makespan, proven.best->step.makespan);
    EXPECT_LE(first.bound, proven.best->step.makespan.count);
    EXPECT_EQ(proven.bound, proven.best->step.makespan.count);
    unproven += first.bound < first.best->step.makespan.count ? 1 : 0;
    problem.options.limits.nodes = 0;
    const Solution solution = solve(problem.graph, problem.costs, problem.cluster, problem.options);
    EXPECT_LE(solution.proven_bound, solution.step.makespan);
    EXPECT_GE(solution.gap(), 0);
  }
  EXPECT_GT(unproven, 5);
}

}  // namespace
}  // namespace stagecraft
