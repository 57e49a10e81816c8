#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tbb/global_control.h>

#include <functional>
#include <string>

#include "partitioner/base/error.h"
#include "partitioner/solver/solver.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMessageMiB = 1024 * 1024;

// Six trainable blocks in a row that keep 10, 20, ... 60 MiB for a micro-batch of two; nothing else
// matters.
testing::PlanningProblem chain(
    int stages, int64_t cap_mib, const std::string& precision = "fp32",
    const std::function<void(int, BlockCost&)>& change = [](int, BlockCost&) {}) {
  BlockGraph graph = testing::row_of_blocks(6);
  CostTable costs = testing::random_costs(graph, 1, 2);
  costs.precision = precision;
  for (int i = 0; i < 6; ++i) {
    BlockCost cost;
    cost.forward.median = Nanos{100};
    cost.keeps_input = {false};
    cost.saved_internal = Bytes{(i + 1) * 10 * kMessageMiB};
    change(i, cost);
    costs.blocks["block" + std::to_string(i)] = cost;
  }
  testing::PlanningProblem problem{.graph = std::move(graph),
                                   .costs = ClusterCosts(std::move(costs)),
                                   .cluster = {},
                                   .options = {}};
  problem.cluster.name = "six";
  problem.cluster.link = {.bandwidth = 1e9, .latency = {}};
  for (int r = 0; r < 6; ++r)
    problem.cluster.devices.push_back({.name = "d",
                                       .kind = "cpu",
                                       .memory = Bytes{cap_mib * kMessageMiB},
                                       .op_latency = {},
                                       .base = {},
                                       .comm_buffer_per_peer = {}});
  problem.options = {.stages = stages, .batch = 2, .micro_batch = 2, .may_recompute = false};
  return problem;
}

std::string refusal(const testing::PlanningProblem& problem) {
  try {
    solve(problem.graph, problem.costs, problem.cluster, problem.options);
  } catch (const ResourceError& error) {
    EXPECT_EQ(error.code(), ExitCode::kOutOfMemory);
    return error.what();
  }
  ADD_FAILURE() << "a split was found";
  return "";
}

TEST(SolverMessages, NamesStageBlockAndMebibytesOver) {
  // Best in two stages: 10+20+30+40 | 50+60. Caps of 80 MiB leave it 30 MiB and a little over.
  const std::string message = refusal(chain(2, 80));
  EXPECT_THAT(message, HasSubstr("no split in 2 stages fits 2 x 80 MiB"));
  EXPECT_THAT(message, HasSubstr("on rank 1 (stage 1: 2 blocks, block4 to block5), 31 MiB over"));
  EXPECT_THAT(message, HasSubstr("its largest block is block5 with 61 MiB"));
  EXPECT_THAT(message, HasSubstr("it fits devices with 31 MiB more each"));
}

TEST(SolverMessages, IsOneLine) { EXPECT_THAT(refusal(chain(2, 80)), Not(HasSubstr("\n"))); }

TEST(SolverMessages, TriesMoreStages) {
  EXPECT_THAT(refusal(chain(2, 80)), HasSubstr("; 4 stages on 4 such devices would fit"));
  EXPECT_THAT(refusal(chain(2, 95)), HasSubstr("; 3 stages on 3 such devices would fit"));
  EXPECT_THAT(refusal(chain(2, 40)), HasSubstr("; none found in 6 stages"));
}

TEST(SolverMessages, TriesASmallerMicroBatch) {
  EXPECT_THAT(refusal(chain(2, 80)), HasSubstr("micro-batch 1 fits (estimated)"));
  EXPECT_THAT(refusal(chain(2, 20)), HasSubstr("micro-batch 1 does not (estimated)"));
}

TEST(SolverMessages, TriesHalfPrecision) {
  EXPECT_THAT(refusal(chain(2, 80)), HasSubstr("precision fp16 fits (estimated)"));
  EXPECT_THAT(refusal(chain(2, 80, "fp16")), Not(HasSubstr("precision")));
}

TEST(SolverMessages, WhatItSaysFitsDoesFit) {
  testing::PlanningProblem problem = chain(2, 80 + 31);
  EXPECT_NO_THROW(solve(problem.graph, problem.costs, problem.cluster, problem.options));
}

TEST(SolverOptions, RefusesWhatMakesNoSense) {
  const auto with = [](auto change) {
    testing::PlanningProblem problem = chain(2, 1000);
    change(problem.options);
    return [problem] { solve(problem.graph, problem.costs, problem.cluster, problem.options); };
  };
  EXPECT_THROW(with([](SolverOptions& o) { o.stages = 7; })(), ConfigError);
  EXPECT_THROW(with([](SolverOptions& o) { o.schedule = "2f2b"; })(), ConfigError);
  EXPECT_THROW(with([](SolverOptions& o) { o.micro_batch = 1; })(), ConfigError);
  EXPECT_THROW(with([](SolverOptions& o) { o.memory_caps = {Bytes{1}}; })(), ConfigError);
  EXPECT_NO_THROW(with([](SolverOptions&) {})());
}

TEST(SolverDeterminism, ThreadsDoNotMatter) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    testing::PlanningProblem problem = testing::random_problem(seed);
    if (static_cast<int>(glue(problem.graph).blocks.size()) < problem.options.stages + 2) continue;
    const Solution many = solve(problem.graph, problem.costs, problem.cluster, problem.options);
    const tbb::global_control one(tbb::global_control::max_allowed_parallelism, 1);
    const Solution single = solve(problem.graph, problem.costs, problem.cluster, problem.options);
    EXPECT_EQ(many.placement, single.placement) << "seed " << seed;
  }
}

TEST(SolverMessages, TriesToRunBlocksAgain) {
  // Two micro-batches in flight on stage 0: 10+20+30 twice, and 40+50+60 on stage 1.
  testing::PlanningProblem problem = chain(2, 140);
  problem.options.batch = 8;
  EXPECT_THAT(refusal(problem), HasSubstr("running again in the backward pass it fits"));
  problem.options.may_recompute = true;
  const Solution solution = solve(problem.graph, problem.costs, problem.cluster, problem.options);
  EXPECT_THAT(solution.placement.recompute, ::testing::Contains(true));
}

}  // namespace
}  // namespace stagecraft
