#include <gtest/gtest.h>

#include "partitioner/base/error.h"
#include "partitioner/cost/analytic.h"
#include "tests/support/random_graph.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

// 1 GFLOP/s and 1 GB/s: one operation or byte a nanosecond.
Device slow_device() {
  Device device;
  device.name = "slow";
  device.kind = "cpu";
  device.flops_fp32 = device.flops_fp16 = 1e9;
  device.bandwidth = 1e9;
  return device;
}

// Three linear layers over [8] vectors, the middle one trained.
BlockGraph three() {
  return ToyGraph()
      .add("a", {"input.x"}, false)
      .add("b", {"a"}, true)
      .add("c", {"b"}, false)
      .build("c");
}

// A linear layer [8] -> [8]: 128 operations against 32 + 32 + 256 bytes.
constexpr int64_t kLinear = 320;

TEST(AnalyticTable, TimesARooflineByHand) {
  const CostTable table = analytic_cost_table(three(), slow_device(), "fp32", 1);
  EXPECT_EQ(table.blocks.at("a").forward.median.count, kLinear);
  Device device = slow_device();
  device.efficiency_bandwidth = 0.5;
  device.op_latency = Nanos{7};
  EXPECT_EQ(analytic_cost_table(three(), device, "fp32", 1).blocks.at("a").forward.median.count,
            2 * kLinear + 7);
  device.efficiency_matmul = 0.1;  // now the products take longest
  EXPECT_EQ(analytic_cost_table(three(), device, "fp32", 1).blocks.at("a").forward.median.count,
            1280 + 7);
}

TEST(AnalyticTable, AFrozenBlockWithoutGradientAboveRunsForwardOnly) {
  const BlockCost cost = analytic_cost_table(three(), slow_device(), "fp32", 1).blocks.at("a");
  EXPECT_EQ(cost.backward_input.median.count, 0);
  EXPECT_EQ(cost.backward_weight.median.count, 0);
  EXPECT_EQ(cost.saved_internal.count, 0);
  EXPECT_EQ(cost.keeps_input, std::vector<bool>{false});
}

TEST(AnalyticTable, ATrainedBlockWithNothingAboveHasWeightGradientsOnly) {
  const BlockCost cost = analytic_cost_table(three(), slow_device(), "fp32", 1).blocks.at("b");
  EXPECT_EQ(cost.backward_input.median.count, 0);
  EXPECT_EQ(cost.backward_weight.median.count, kLinear);
  EXPECT_EQ(cost.keeps_input, std::vector<bool>{true});
}

TEST(AnalyticTable, AFrozenBlockBelowPassesGradientsOnAndKeepsNoInput) {
  const BlockCost cost = analytic_cost_table(three(), slow_device(), "fp32", 1).blocks.at("c");
  EXPECT_EQ(cost.backward_input.median.count, kLinear);
  EXPECT_EQ(cost.backward_weight.median.count, 0);
  EXPECT_EQ(cost.keeps_input, std::vector<bool>{false});
}

TEST(AnalyticTable, ParametersAreFp32WhereTrained) {
  const CostTable table = analytic_cost_table(three(), slow_device(), "fp16", 1);
  EXPECT_EQ(table.blocks.at("a").parameters.count, 64 * 2);
  EXPECT_EQ(table.blocks.at("b").parameters.count, 64 * 4);
}

TEST(AnalyticTable, ABlockWithoutAPathToTheLossCostsItsParameters) {
  const BlockGraph graph = ToyGraph()
                               .add("a", {"input.x"}, true)
                               .add("lost", {"a"}, true)
                               .add("c", {"a"}, false)
                               .build("c");
  const BlockCost cost = analytic_cost_table(graph, slow_device(), "fp32", 1).blocks.at("lost");
  EXPECT_EQ(cost.forward.median.count, 0);
  EXPECT_EQ(cost.workspace_backward.count, 0);
  EXPECT_EQ(cost.parameters.count, 64 * 4);
}

TEST(AnalyticTable, BytesGrowWithTheMicroBatch) {
  const BlockGraph graph = testing::random_graph(3);
  const CostTable one = analytic_cost_table(graph, slow_device(), "fp32", 1);
  const CostTable four = analytic_cost_table(graph, slow_device(), "fp32", 4);
  for (const auto& [name, cost] : one.blocks) {
    EXPECT_EQ(four.blocks.at(name).saved_internal, cost.saved_internal * 4) << name;
    EXPECT_EQ(four.blocks.at(name).output, cost.output * 4) << name;
    EXPECT_GE(four.blocks.at(name).forward.median, cost.forward.median) << name;
  }
}

TEST(AnalyticTable, EveryBlockIsThereAndTheTableMatchesItsGraph) {
  const BlockGraph graph = testing::random_graph(5);
  const CostTable table = analytic_cost_table(graph, slow_device(), "bf16", 2);
  EXPECT_EQ(table.blocks.size(), graph.blocks.size());
  EXPECT_NO_THROW(check_cost_table(
      table, graph, {.device = slow_device().name, .precision = "bf16", .micro_batch = 2}));
}

TEST(AnalyticTable, RefusesWhatItCannotTime) {
  EXPECT_THROW(analytic_cost_table(three(), slow_device(), "fp8", 1), ConfigError);
  EXPECT_THROW(analytic_cost_table(three(), slow_device(), "fp32", 0), ConfigError);
  Device device = slow_device();
  device.flops_fp16 = 0;
  EXPECT_THROW(analytic_cost_table(three(), device, "fp16", 1), ConfigError);
  EXPECT_NO_THROW(analytic_cost_table(three(), device, "fp32", 1));
}

}  // namespace
}  // namespace stagecraft
