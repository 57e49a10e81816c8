// The search against the simplest thing that can be right: try every stage for every unit.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/solver/split_problem.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using testing::memory_of;
using testing::PlanningProblem;
using testing::random_problem;

struct Candidate {
  Placement placement;
  int64_t bottleneck = 0;
  std::vector<RankMemory> memory;

  bool fits(const std::vector<Bytes>& caps) const {
    for (size_t r = 0; r < memory.size(); ++r)
      if (memory[r].total() > caps[r]) return false;
    return true;
  }
};

int64_t bottleneck_of(const PlanningProblem& problem, const Placement& placement) {
  int64_t worst = 0;
  for (int s = 0; s < placement.stages(); ++s) {
    worst = std::max(worst, stage_time(problem, placement, s));
  }
  return worst;
}

// A sum runs where the later of its producers does; later still only if a fold asks for it.
void place_followers(const BlockGraph& graph, const Units& units, Placement& placement) {
  for (size_t u = 0; u < units.blocks.size(); ++u) {
    if (!units.follows[u]) continue;
    const int sum = units.blocks[u].front();
    int stage = 0;
    for (int v : graph.blocks[sum].inputs) {
      if (graph.values[v].producer >= 0)
        stage = std::max(stage, placement.stage_of_block[graph.values[v].producer]);
      for (int consumer : graph.gradient_consumers(v))
        if (consumer < sum) stage = std::max(stage, placement.stage_of_block[consumer]);
    }
    placement.stage_of_block[sum] = stage;
  }
}

std::vector<Candidate> every_placement(const PlanningProblem& problem) {
  const Units units = glue(problem.graph);
  std::vector<size_t> searched;
  for (size_t u = 0; u < units.blocks.size(); ++u)
    if (!units.follows[u]) searched.push_back(u);
  const int stages = problem.options.stages;
  std::vector<Candidate> all;
  int64_t combinations = 1;
  for (size_t i = 0; i < searched.size(); ++i) combinations *= stages;
  for (int64_t c = 0; c < combinations; ++c) {
    Candidate candidate;
    candidate.placement.stage_of_block.assign(problem.graph.blocks.size(), -1);
    candidate.placement.recompute.assign(problem.graph.blocks.size(), false);
    for (int s = 0; s < stages; ++s) candidate.placement.rank_of_stage.push_back(s);
    int64_t rest = c;
    for (size_t u : searched) {
      for (int b : units.blocks[u])
        candidate.placement.stage_of_block[b] = static_cast<int>(rest % stages);
      rest /= stages;
    }
    place_followers(problem.graph, units, candidate.placement);
    if (!placement_faults(problem.graph, candidate.placement).empty()) continue;
    candidate.bottleneck = bottleneck_of(problem, candidate.placement);
    candidate.memory = memory_of(problem, candidate.placement);
    all.push_back(std::move(candidate));
  }
  return all;
}

constexpr int kProblemsPerTest = 60;

class SolverOracle : public ::testing::TestWithParam<int> {
 protected:
  static std::vector<uint64_t> seeds() {
    std::vector<uint64_t> seeds;
    for (int i = 0; i < kProblemsPerTest; ++i) seeds.push_back(GetParam() * kProblemsPerTest + i);
    return seeds;
  }
};

TEST_P(SolverOracle, FindsTheBestBottleneckUnderCapsAtTheVeryEdge) {
  int solved = 0, refused = 0;
  for (uint64_t seed : seeds()) {
    PlanningProblem problem = random_problem(seed);
    const std::vector<Candidate> all = every_placement(problem);
    if (all.empty()) continue;  // fewer units than stages
    // Caps that some placement meets to the byte, and the same one byte lower on one rank.
    testing::Dice dice(seed);
    const Candidate& edge = all[dice.below(static_cast<int>(all.size()))];
    for (const RankMemory& memory : edge.memory)
      problem.options.memory_caps.push_back(memory.total());
    for (int lowered = 0; lowered < 2; ++lowered) {
      if (lowered == 1) problem.options.memory_caps[dice.below(problem.options.stages)] -= Bytes{1};
      std::optional<int64_t> expected;
      for (const Candidate& candidate : all)
        if (candidate.fits(problem.options.memory_caps) &&
            (!expected || candidate.bottleneck < *expected))
          expected = candidate.bottleneck;
      if (!expected) {
        EXPECT_THROW(
            solve(problem.graph, ClusterCosts(problem.costs), problem.cluster, problem.options),
            ResourceError)
            << "seed " << seed;
        ++refused;
        continue;
      }
      const Solution solution =
          solve(problem.graph, ClusterCosts(problem.costs), problem.cluster, problem.options);
      EXPECT_EQ(solution.bottleneck.count, *expected) << "seed " << seed;
      EXPECT_EQ(solution.proven_bound.count, *expected) << "seed " << seed;
      EXPECT_EQ(bottleneck_of(problem, solution.placement), *expected) << "seed " << seed;
      EXPECT_EQ(memory_of(problem, solution.placement), solution.memory) << "seed " << seed;
      for (size_t r = 0; r < solution.memory.size(); ++r)
        EXPECT_LE(solution.memory[r].total(), problem.options.memory_caps[r]) << "seed " << seed;
      ++solved;
    }
  }
  EXPECT_GT(solved, kProblemsPerTest / 2);
  EXPECT_GT(refused, 0);
}

TEST_P(SolverOracle, TheStageBoundIsNeverAboveTheMemoryModel) {
  int64_t bound_sum = 0, memory_sum = 0;
  for (uint64_t seed : seeds()) {
    const PlanningProblem problem = random_problem(seed);
    const UnitOrder order = order_units(problem.graph, glue(problem.graph));
    const StageCosts costs(problem.graph, order, problem.costs);
    const std::vector<int64_t> sizes =
        micro_batch_sizes(problem.options.batch, problem.options.micro_batch);
    for (const Candidate& candidate : every_placement(problem)) {
      for (int s = 0; s < problem.options.stages; ++s) {
        UnitSet stage;
        for (size_t u = 0; u < order.units.blocks.size(); ++u)
          if (candidate.placement.stage_of_block[order.units.blocks[u].front()] == s)
            stage.add(static_cast<int>(u));
        const StageContext context = stage_context(
            problem.options.schedule, s, problem.options.stages, sizes, problem.costs.micro_batch);
        const int64_t bound = memory_bound(costs.of(stage), context, problem.cluster.devices[s]);
        const int64_t memory = candidate.memory[s].total().count;
        ASSERT_LE(bound, memory) << "seed " << seed << " stage " << s;
        bound_sum += bound;
        memory_sum += memory;
        EXPECT_EQ(costs.time(stage), stage_time(problem, candidate.placement, s));
      }
    }
  }
  EXPECT_GT(static_cast<double>(bound_sum),
            0.85 * static_cast<double>(memory_sum));  // and it is worth having
}

TEST_P(SolverOracle, TheExcessItNamesIsTheSmallestPossible) {
  for (uint64_t seed : seeds()) {
    PlanningProblem problem = random_problem(seed);
    const std::vector<Candidate> all = every_placement(problem);
    if (all.empty()) continue;
    SplitTarget target{
        .devices = problem.cluster.devices,
        .schedule = problem.options.schedule,
        .micro_batch_sizes = micro_batch_sizes(problem.options.batch, problem.options.micro_batch)};
    for (Device& device : target.devices) device.memory = Bytes{200};
    int64_t expected = std::numeric_limits<int64_t>::max();
    for (const Candidate& candidate : all) {
      int64_t worst = 0;
      for (const RankMemory& memory : candidate.memory)
        worst = std::max(worst, memory.total().count - 200);
      expected = std::min(expected, worst);
    }
    const SplitProblem::Leanest leanest =
        SplitProblem(problem.graph, ClusterCosts(problem.costs)).leanest(target);
    EXPECT_EQ(leanest.split.excess(target), expected) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, SolverOracle, ::testing::Range(0, 10));

}  // namespace
}  // namespace stagecraft
