// The splits of the known programs as placements of a graph.
#include "partitioner/baselines/baselines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/chain_graph.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_up_costs.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const Baseline& baseline_named(const std::vector<Baseline>& baselines, const std::string& name) {
  for (const Baseline& baseline : baselines) {
    if (baseline.name == name) return baseline;
  }
  throw std::runtime_error("no baseline " + name);
}

TEST(Baselines, BlockOrderIsAlwaysAValidPlacement) {
  int idle = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 14, .dead_end_percent = 25});
    const CostTable costs = testing::random_costs(graph, seed);
    for (const Block& block : graph.blocks) idle += block.reaches_loss ? 0 : 1;
    for (int stages = 1; stages <= 3; ++stages) {
      for (const Baseline& baseline : block_order_baselines(graph, costs, stages)) {
        EXPECT_EQ(placement_faults(graph, baseline.placement), std::vector<std::string>())
            << baseline.name << ", seed " << seed;
        EXPECT_EQ(baseline.placement.stages(), stages);
      }
    }
  }
  EXPECT_GT(idle, 100);  // blocks that never run have been placed too
}

// Blocks 0..3 are frozen, 10 parameters a block.
TEST(Baselines, ParametersCountsTrainableOnesOnly) {
  const BlockGraph graph = testing::chain_graph(8, 4);
  const auto baselines = block_order_baselines(graph, testing::uniform_costs(graph), 2);
  EXPECT_THAT(baseline_named(baselines, "DeepSpeed parameters").placement.stage_of_block,
              ElementsAre(0, 0, 0, 0, 0, 0, 1, 1));
  EXPECT_THAT(
      baseline_named(baselines, "DeepSpeed parameters, nothing frozen").placement.stage_of_block,
      ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
}

TEST(Baselines, TimeIsForwardAndBackward) {
  const BlockGraph graph = testing::chain_graph(4);
  CostTable costs = testing::uniform_costs(graph);
  for (const char* name : {"block0", "block1"})
    costs.blocks.at(name).backward_weight.median = {990};
  const auto baselines = block_order_baselines(graph, costs, 2);
  for (const char* name : {"torchgpipe by time", "least largest stage, in block order"}) {
    EXPECT_THAT(baseline_named(baselines, name).placement.stage_of_block, ElementsAre(0, 1, 1, 1))
        << name;
  }
}

TEST(Baselines, SizeIsWhatABlockAllocatesAndItsParameters) {
  const BlockGraph graph = testing::chain_graph(4);
  CostTable costs = testing::uniform_costs(graph);
  for (auto& [name, cost] : costs.blocks) cost.parameters = {40};
  const auto split = [&] {
    return baseline_named(block_order_baselines(graph, costs, 2), "torchgpipe by size")
        .placement.stage_of_block;
  };
  for (const char* name : {"block2", "block3"}) costs.blocks.at(name).saved_internal = {5000};
  EXPECT_THAT(split(), ElementsAre(0, 0, 0, 1));
  for (const char* name : {"block0", "block1"}) costs.blocks.at(name).parameters = {5000};
  EXPECT_THAT(split(), ElementsAre(0, 1, 1, 1));
}

TEST(Baselines, WithNothingFrozenParametersAreGivenOnce) {
  const BlockGraph graph = testing::chain_graph(4);
  EXPECT_EQ(block_order_baselines(graph, testing::uniform_costs(graph), 2).size(), 5u);
}

TEST(Baselines, MoreStagesThanBlocksAreRefusedWithTheNumbers) {
  const BlockGraph graph = testing::chain_graph(4);
  const auto error =
      caught([&] { block_order_baselines(graph, testing::uniform_costs(graph), 5); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr("5 stages for 4 blocks that run: give 1 to 4"));
}

}  // namespace
}  // namespace stagecraft
