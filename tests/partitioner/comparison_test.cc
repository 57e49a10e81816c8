// The plan beside the known splits.
#include "partitioner/plan/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "partitioner/baselines/baselines.h"
#include "partitioner/plan/make_plan.h"
#include "partitioner/solver/down_sets.h"
#include "tests/support/chain_graph.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_up_costs.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Six blocks, the first as long as the others together; two stages of three blocks each.
class ComparisonOfSix : public ::testing::Test {
 protected:
  ComparisonOfSix() {
    CostTable table = testing::uniform_costs(graph_);
    table.blocks.at("block0").forward.median = {130};
    costs_ = ClusterCosts(table);
    for (Device& device : cluster_.devices) device.memory = {1 << 20};
    placement_.stage_of_block = {0, 0, 0, 1, 1, 1};
    placement_.rank_of_stage = {0, 1};
    placement_.recompute.assign(6, false);
    train_.batch = 8;
  }
  Comparison compared() const {
    Plan plan = make_plan(train_, graph_, placement_, "1f1b");
    const ResolvedPlan resolved = resolve_plan(plan, graph_, "plan.yaml");
    predict(plan, graph_, resolved, costs_, cluster_);
    return compare(plan, graph_, resolved, costs_, cluster_);
  }
  static const SplitRow& row_of(const Comparison& comparison, const std::string& name) {
    for (const SplitRow& row : comparison.splits) {
      if (row.name == name) return row;
    }
    throw std::runtime_error("no split " + name);
  }

  BlockGraph graph_ = testing::chain_graph(6);
  ClusterCosts costs_{testing::uniform_costs(graph_)};
  Cluster cluster_ = testing::plain_cluster(2);
  Placement placement_;
  TrainConfig train_;
};

TEST_F(ComparisonOfSix, ThePlanComesFirstAsItIsPredicted) {
  const SplitRow plan = compared().splits.front();
  EXPECT_EQ(plan.name, "this plan");
  // 150 + 30 + 30 against 90.
  EXPECT_DOUBLE_EQ(plan.balance, 210.0 * 2 / 300);
  EXPECT_EQ(plan, [&] {
    SplitRow same = row_of(compared(), "DeepSpeed uniform");
    same.name = plan.name;
    same.how = plan.how;
    return same;
  }());
}

TEST_F(ComparisonOfSix, TheLeastLargestStageIsEven) {
  const Comparison comparison = compared();
  for (const char* name :
       {"least largest stage, in block order", "least largest stage, over branches"}) {
    const SplitRow& row = row_of(comparison, name);
    EXPECT_DOUBLE_EQ(row.balance, 1.0) << name;
    EXPECT_LT(row.step, comparison.splits.front().step) << name;
  }
}

TEST_F(ComparisonOfSix, SaysHowMuchASplitIsOverAndWhere) {
  const Bytes needed = compared().splits.front().memory;
  for (Device& device : cluster_.devices) device.memory = needed - Bytes{1};
  const Comparison comparison = compared();
  EXPECT_FALSE(comparison.splits.front().fits());
  EXPECT_THAT(to_text(comparison), HasSubstr("  0.0 MiB TOO MUCH"));
  cluster_.devices[1].memory = {1};
  EXPECT_EQ(compared().splits.front().rank, 1);
}

TEST(ComparisonAdvice, NamesTheBestSplitThatFits) {
  const auto row = [](const std::string& name, int64_t step, int64_t memory) {
    return SplitRow{
        .name = name, .how = "", .step = {step}, .memory = {memory}, .device_memory = {100}};
  };
  EXPECT_EQ(advise(std::vector{row("this plan", 100, 1), row("a", 130, 1), row("b", 110, 1),
                               row("c", 90, 101)}),
            "Of the known splits that fit \"b\" is the fastest: 10.0 % slower than this plan.");
  EXPECT_EQ(advise(std::vector{row("this plan", 100, 1), row("a", 80, 1)}),
            "Of the known splits that fit \"a\" is the fastest: 20.0 % faster than this plan.");
  EXPECT_EQ(advise(std::vector{row("this plan", 100, 1), row("a", 80, 101)}),
            "None of the known splits fits these devices.");
}

TEST_F(ComparisonOfSix, TextAndJsonHoldTheSameRows) {
  const Comparison comparison = compared();
  const std::string text = to_text(comparison);
  const auto out = nlohmann::json::parse(to_json(comparison));
  ASSERT_EQ(out["splits"].size(), comparison.splits.size());
  for (size_t i = 0; i < comparison.splits.size(); ++i) {
    const SplitRow& row = comparison.splits[i];
    EXPECT_THAT(text, HasSubstr("\n    " + row.name));
    EXPECT_EQ(out["splits"][i]["name"], row.name);
    EXPECT_EQ(out["splits"][i]["memory"], row.memory.count);
    EXPECT_EQ(out["splits"][i]["fits"], row.fits());
  }
  EXPECT_EQ(out["advice"]["split"], advise(comparison.splits));
}

// Every chain of down-sets, one stage after the other.
int64_t least_by_enumeration(const BlockGraph& graph, const CostTable& costs, int stages) {
  const UnitOrder order = order_units(graph, glue(graph));
  const auto sets = down_sets(order, 3000);
  const auto time_of = [&](const UnitSet& units) {
    int64_t sum = 0;
    for (const int unit : units.members()) {
      for (const int b : order.units.blocks[unit]) {
        if (!graph.blocks[b].reaches_loss) continue;
        const BlockCost& cost = costs.blocks.at(graph.blocks[b].name);
        sum += cost.forward.median.count + cost.backward_input.median.count +
               cost.backward_weight.median.count;
      }
    }
    return sum;
  };
  int64_t best = std::numeric_limits<int64_t>::max();
  const std::function<void(size_t, int, int64_t)> extend = [&](size_t from, int left,
                                                               int64_t largest) {
    if (left == 0) {
      if (from == sets.size() - 1) best = std::min(best, largest);
      return;
    }
    for (size_t to = from + 1; to < sets.size(); ++to) {
      if (!sets[from].is_subset_of(sets[to])) continue;
      extend(to, left - 1, std::max(largest, time_of(sets[to].minus(sets[from]))));
    }
  };
  extend(0, stages, 0);
  return best;
}

TEST(BranchBaseline, IsTheEnumeratedOptimumAndAValidPlacement) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const BlockGraph graph =
        testing::random_graph(seed, {.blocks = 8, .time_embedding = seed % 2 == 0});
    const CostTable costs = testing::random_costs(graph, seed);
    const UnitOrder order = order_units(graph, glue(graph));
    const int stages = 2 + static_cast<int>(seed % 2);
    if (static_cast<int>(order.units.blocks.size()) < stages) continue;
    const Placement placement = branch_baseline(graph, ClusterCosts(costs), stages).placement;
    EXPECT_EQ(placement_faults(graph, placement), std::vector<std::string>());
    std::vector<int64_t> times(stages, 0);
    for (size_t b = 0; b < graph.blocks.size(); ++b) {
      const int stage = placement.stage_of_block[b];
      if (stage < 0 || !graph.blocks[b].reaches_loss) continue;
      const BlockCost& cost = costs.blocks.at(graph.blocks[b].name);
      times[stage] += cost.forward.median.count + cost.backward_input.median.count +
                      cost.backward_weight.median.count;
    }
    EXPECT_EQ(std::ranges::max(times), least_by_enumeration(graph, costs, stages)) << seed;
    ++compared;
  }
  EXPECT_GT(compared, 40);
}

// Two kinds of devices: the second takes twice as long, so it gets a third of the blocks.
TEST(BranchBaseline, GivesASlowerDeviceLess) {
  const BlockGraph graph = testing::chain_graph(6);
  CostTable slow = testing::uniform_costs(graph);
  for (auto& [name, cost] : slow.blocks) {
    cost.forward.median = {20};
    cost.backward_input.median = {16};
    cost.backward_weight.median = {24};
  }
  const ClusterCosts costs({testing::uniform_costs(graph), slow}, {0, 1});
  EXPECT_THAT(branch_baseline(graph, costs, 2).placement.stage_of_block,
              ::testing::ElementsAre(0, 0, 0, 0, 1, 1));
}

TEST(BranchBaseline, MoreStagesThanUnitsAreRefused) {
  const BlockGraph graph = testing::chain_graph(3);
  const auto error =
      caught([&] { branch_baseline(graph, ClusterCosts(testing::uniform_costs(graph)), 4); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr("4 stages for 3 units of blocks: give 1 to 3"));
}

}  // namespace
}  // namespace stagecraft
