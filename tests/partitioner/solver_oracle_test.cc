// The search against the simplest thing that can be right: try every stage for every unit, every
// order of the devices, values sent straight and relayed, and every set of blocks that run again.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/solver/leanest.h"
#include "partitioner/solver/solver.h"
#include "partitioner/solver/target.h"
#include "tests/partitioner/solver_problems.h"

namespace stagecraft {
namespace {

using testing::every_placement;
using testing::PlanningProblem;
using testing::Predicted;
using testing::random_problem;

// With every order of the devices.
std::vector<Placement> in_every_order(const std::vector<Placement>& placements) {
  std::vector<Placement> all;
  for (Placement placement : placements) {
    do all.push_back(placement);
    while (std::ranges::next_permutation(placement.rank_of_stage).found);
  }
  return all;
}

// With what further stages need relayed, too.
std::vector<Placement> straight_and_relayed(std::vector<Placement> placements) {
  for (size_t i = 0, count = placements.size(); i < count; ++i) {
    placements.push_back(placements[i]);
    placements.back().relays = true;
  }
  return placements;
}

// With every set of blocks that have a backward pass running again.
std::vector<Placement> with_every_rerun(const PlanningProblem& problem, const Placement& plain) {
  std::vector<int> blocks;
  for (int b = 0; b < static_cast<int>(problem.graph.blocks.size()); ++b)
    if (problem.graph.blocks[b].reaches_loss && problem.graph.blocks[b].state != BlockState::kF)
      blocks.push_back(b);
  std::vector<Placement> all;
  for (int members = 1; members < 1 << blocks.size(); ++members) {
    all.push_back(plain);
    for (size_t i = 0; i < blocks.size(); ++i)
      if ((members >> i & 1) != 0) all.back().recompute[blocks[i]] = true;
  }
  return all;
}

struct OracleCase {
  const char* name;
  int problems;
  bool unequal_devices, recompute, slow_links;
  int most_stages = 3;
};

class SolverOracleLarge : public ::testing::TestWithParam<std::tuple<OracleCase, int>> {
 protected:
  static const OracleCase& oracle_case() { return std::get<0>(GetParam()); }
  static std::vector<uint64_t> seeds() {
    std::vector<uint64_t> seeds;
    for (int i = 0; i < oracle_case().problems; ++i)
      seeds.push_back(std::get<1>(GetParam()) * oracle_case().problems + i);
    return seeds;
  }
  static PlanningProblem problem(uint64_t seed) {
    PlanningProblem problem =
        random_problem(seed, {.most_blocks = oracle_case().recompute ? 4 : 5,
                              .most_stages = oracle_case().most_stages,
                              .unequal_devices = oracle_case().unequal_devices,
                              .slow_links = oracle_case().slow_links});
    problem.options.may_recompute = oracle_case().recompute;
    problem.options.any_order = oracle_case().unequal_devices;
    return problem;
  }
};

TEST_P(SolverOracleLarge, FindsTheShortestStepUnderCapsAtTheVeryEdge) {
  int solved = 0, refused = 0, reran = 0, relayed = 0;
  for (uint64_t seed : seeds()) {
    PlanningProblem problem = SolverOracleLarge::problem(seed);
    std::vector<Placement> plain = every_placement(problem);
    if (problem.options.any_order) plain = in_every_order(plain);
    if (plain.empty()) continue;  // fewer units than stages
    if (problem.options.stages > 2) plain = straight_and_relayed(std::move(plain));
    // Caps that some placement meets to the byte, and the same one byte lower on one rank.
    testing::Dice dice(seed);
    Placement edge = plain[dice.below(static_cast<int>(plain.size()))];
    if (problem.options.may_recompute)
      for (size_t b = 0; b < edge.recompute.size(); ++b)
        edge.recompute[b] = problem.graph.blocks[b].state != BlockState::kF && dice.percent(50);
    for (const RankMemory& memory : predict(problem, edge).memory)
      problem.options.memory_caps.push_back(memory.total());
    for (int lowered = 0; lowered < 2; ++lowered) {
      if (lowered == 1) problem.options.memory_caps[dice.below(problem.options.stages)] -= Bytes{1};
      std::optional<Nanos> expected;
      const auto look_at = [&](const Placement& placement) {
        const Predicted predicted = predict(problem, placement);
        const bool fits = predicted.fits(problem.options.memory_caps);
        if (fits && (!expected || predicted.step < *expected)) expected = predicted.step;
        return fits;
      };
      for (const Placement& placement : plain) {
        // Running again takes time: nothing to win where it is not needed.
        if (look_at(placement) || !problem.options.may_recompute) continue;
        for (const Placement& rerun : with_every_rerun(problem, placement)) look_at(rerun);
      }
      if (!expected) {
        EXPECT_THROW(solve(problem.graph, problem.costs, problem.cluster, problem.options),
                     ResourceError)
            << "seed " << seed;
        ++refused;
        continue;
      }
      const StageTable table(problem.graph, problem.costs);
      const SearchResult found =
          find_split(table, target_of(table, problem.cluster, problem.options), {});
      ASSERT_TRUE(found.best) << "seed " << seed;
      const Predicted predicted = predict(problem, found.best->placement);
      EXPECT_EQ(found.best->step.makespan, *expected) << "seed " << seed;
      EXPECT_EQ(found.bound, expected->count) << "seed " << seed;
      EXPECT_EQ(predicted.step, *expected) << "seed " << seed;
      EXPECT_EQ(predicted.memory, found.best->memory) << "seed " << seed;
      EXPECT_TRUE(predicted.fits(problem.options.memory_caps)) << "seed " << seed;
      // Behind the units it only becomes better.
      const Solution solution =
          solve(problem.graph, problem.costs, problem.cluster, problem.options);
      EXPECT_LE(solution.step.makespan, *expected) << "seed " << seed;
      EXPECT_EQ(solution.proven_bound, solution.step.makespan) << "seed " << seed;
      // Also than what is sent straight, refined, where relaying whole units was shorter.
      SplitTarget way = target_of(table, problem.cluster, problem.options);
      way.relays = false;
      SearchResult straight = search_step(table, way, {});
      if (straight.best) {
        EXPECT_LE(solution.step.makespan,
                  solution_of(table, way, *std::move(straight.best), 0, {}).step.makespan)
            << "seed " << seed;
      }
      const Predicted refined = predict(problem, solution.placement);
      EXPECT_EQ(refined.step, solution.step.makespan) << "seed " << seed;
      EXPECT_TRUE(refined.fits(problem.options.memory_caps)) << "seed " << seed;
      ++solved;
      relayed += found.best->placement.relays ? 1 : 0;
      reran += std::ranges::count(found.best->placement.recompute, true) > 0 ? 1 : 0;
    }
  }
  EXPECT_GT(solved, oracle_case().problems / 2);
  EXPECT_GT(refused, 0);
  EXPECT_EQ(reran > 0, oracle_case().recompute);
  std::cout << solved << " solved, " << relayed << " of them relayed\n";
}

std::string name_of(const ::testing::TestParamInfo<SolverOracleLarge::ParamType>& info) {
  return std::string(std::get<0>(info.param).name) + std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(
    Problems, SolverOracleLarge,
    ::testing::Combine(::testing::Values(OracleCase{"Equal", 60, false, false, false},
                                         OracleCase{"SlowLinks", 60, false, false, true},
                                         OracleCase{"UnequalDevices", 60, true, false, true},
                                         OracleCase{"Recompute", 40, false, true, false},
                                         OracleCase{"FourStages", 40, false, false, true, 4},
                                         OracleCase{"Everything", 40, true, true, true}),
                       ::testing::Range(0, 8)),
    name_of);

TEST(StageBound, IsNeverAboveTheMemoryModel) {
  int64_t bound_sum = 0, memory_sum = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const PlanningProblem problem = random_problem(seed);
    const UnitOrder order = order_units(problem.graph, glue(problem.graph));
    const StageCosts costs(problem.graph, order, problem.costs.of_kind(0));
    StageReplay replay = costs.make_replay();
    const std::vector<int64_t> sizes =
        micro_batch_sizes(problem.options.batch, problem.options.micro_batch);
    testing::Dice dice(seed);
    for (Placement placement : every_placement(problem)) {
      for (size_t b = 0; b < placement.recompute.size(); ++b)
        placement.recompute[b] =
            seed % 2 == 1 && problem.graph.blocks[b].state != BlockState::kF && dice.percent(40);
      placement.relays = seed % 3 == 0;
      const Predicted predicted = predict(problem, placement);
      for (int s = 0; s < problem.options.stages; ++s) {
        UnitSet stage;
        for (size_t u = 0; u < order.units.blocks.size(); ++u)
          if (placement.stage_of_block[order.units.blocks[u].front()] == s)
            stage.add(static_cast<int>(u));
        const StageContext context =
            stage_context(problem.options.schedule, s, problem.options.stages, sizes,
                          problem.options.micro_batch);
        const int64_t bound = memory_bound(costs.of(stage, replay, &placement.recompute), context,
                                           problem.cluster.devices[s]);
        const int64_t memory = predicted.memory[s].total().count;
        ASSERT_LE(bound, memory) << "seed " << seed << " stage " << s;
        bound_sum += bound;
        memory_sum += memory;
      }
    }
  }
  EXPECT_GT(static_cast<double>(bound_sum),
            0.85 * static_cast<double>(memory_sum));  // and it is worth having
}

TEST(LeanestSplit, NeedsTheSmallestExcessPossible) {
  int relayed = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    PlanningProblem problem = random_problem(seed);
    std::vector<Placement> all = every_placement(problem);
    if (all.empty()) continue;
    if (problem.options.stages > 2) all = straight_and_relayed(std::move(all));
    problem.options.may_recompute = false;
    for (int r = 0; r < problem.options.stages; ++r)
      problem.options.memory_caps.push_back(Bytes{200});
    int64_t expected = std::numeric_limits<int64_t>::max();
    for (const Placement& placement : all) {
      int64_t worst = 0;
      for (const RankMemory& memory : predict(problem, placement).memory)
        worst = std::max(worst, memory.total().count - 200);
      expected = std::min(expected, worst);
    }
    const StageTable table(problem.graph, problem.costs);
    const SplitTarget target = target_of(table, problem.cluster, problem.options);
    const Split split = leanest_split(table, target).split;
    EXPECT_EQ(split.excess(target), expected) << "seed " << seed;
    relayed += split.placement.relays ? 1 : 0;
  }
  EXPECT_GT(relayed, 0);
}

}  // namespace
}  // namespace stagecraft
