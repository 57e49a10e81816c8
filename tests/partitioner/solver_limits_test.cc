// What the search does behind its limits, when too many splits that look fine are refused by the
// memory model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "partitioner/base/error.h"
#include "partitioner/solver/solver.h"
#include "partitioner/solver/split_problem.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

// 28 blocks with skips over the middle in five stages: 17,550 splits, whose memory depends on where
// the skips end. The caps are what a lean split needs, to the byte.
testing::PlanningProblem problem_with_a_split_that_fits_to_the_byte(uint64_t seed) {
  constexpr int kBlocks = 28, kStages = 5;
  testing::Dice dice(seed);
  ToyGraph toy;
  std::string hidden = "input.x";
  for (int i = 0; i < kBlocks; ++i) {
    std::vector<std::string> inputs{hidden};
    if (i > kBlocks / 2) inputs.push_back("block" + std::to_string(kBlocks - 1 - i));
    hidden = "block" + std::to_string(i);
    toy.add(hidden, inputs, true);
  }
  testing::PlanningProblem problem;
  problem.graph = toy.build(hidden);
  for (Value& value : problem.graph.values) value.shape = {1 + dice.below(1000)};
  problem.costs = testing::random_costs(problem.graph, seed, 1);
  problem.cluster.name = "many";
  problem.cluster.link = {.bandwidth = 1e9, .latency = {}};
  for (int r = 0; r < kStages; ++r)
    problem.cluster.devices.push_back({.name = "d",
                                       .kind = "cpu",
                                       .memory = {},
                                       .op_latency = {},
                                       .base = {},
                                       .comm_buffer_per_peer = Bytes{1000}});
  problem.options.stages = kStages;
  problem.options.batch = 6;
  const SplitTarget target{.devices = problem.cluster.devices,
                           .schedule = problem.options.schedule,
                           .micro_batch_sizes = micro_batch_sizes(problem.options.batch, 1)};
  const SplitProblem splits(problem.graph, ClusterCosts(problem.costs));
  for (const RankMemory& rank : splits.leanest(target).split.memory)
    problem.options.memory_caps.push_back(rank.total());
  return problem;
}

TEST(SolverLimits, ASplitThatKeepsNoMarginIsFoundAndWhatIsProvenIsSaid) {
  const testing::PlanningProblem problem = problem_with_a_split_that_fits_to_the_byte(0);
  const Solution found =
      solve(problem.graph, ClusterCosts(problem.costs), problem.cluster, problem.options);
  for (size_t r = 0; r < found.memory.size(); ++r)
    EXPECT_LE(found.memory[r].total(), problem.options.memory_caps[r]) << "rank " << r;
  EXPECT_LT(found.proven_bound, found.bottleneck);
}

TEST(SolverLimitsSlow, NothingFoundIsNotCalledImpossible) {
  const testing::PlanningProblem problem = problem_with_a_split_that_fits_to_the_byte(22);
  try {
    solve(problem.graph, ClusterCosts(problem.costs), problem.cluster, problem.options);
    FAIL() << "found: take another seed";
  } catch (const ResourceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no split in 5 stages was found that fits"));
    EXPECT_THAT(error.what(), HasSubstr("the leanest found needs"));
  }
}

}  // namespace
}  // namespace stagecraft
