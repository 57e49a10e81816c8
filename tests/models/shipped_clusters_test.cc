// Every shipped cluster can be planned for: tables for its devices, a simulated step and what each
// rank holds.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "partitioner/cost/analytic.h"
#include "partitioner/plan/make_plan.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

const std::string kConfigs = std::string(STAGECRAFT_SOURCE_DIR) + "/configs/";

std::vector<std::string> shipped_clusters() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kConfigs + "clusters")) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  return names;
}

class ShippedCluster : public ::testing::TestWithParam<std::string> {};

TEST_P(ShippedCluster, IsPlannedFor) {
  const Cluster cluster = read_cluster(kConfigs + "clusters/" + GetParam() + ".yaml");
  TrainConfig train;
  train.model = kConfigs + "models/sd15_controlnet_tiny.yaml";
  train.width = train.height = 128;
  train.precision = cluster.devices.front().kind == "cuda" ? "fp16" : "fp32";
  const BlockGraph graph = build_training_graph(read_model_config(train.model), train.width,
                                                train.height, train.trainable, train.precision);
  const int ranks = static_cast<int>(cluster.devices.size());
  const Placement placement = testing::random_placement(graph, 1, ranks, ranks);
  Plan plan = make_plan(train, graph, placement, "1f1b");
  const ClusterCosts costs =
      analytic_cluster_costs(graph, cluster, train.precision, train.micro_batch);
  predict(plan, graph, resolve_plan(plan, graph, "plan.yaml"), costs, cluster);
  ASSERT_EQ(plan.ranks.size(), cluster.devices.size());
  for (int r = 0; r < ranks; ++r) {
    const Device& device = cluster.devices[r];
    EXPECT_EQ(plan.ranks[r].device, device.name);
    EXPECT_GT(plan.ranks[r].busy.count, 0);
    EXPECT_GE(plan.ranks[r].memory.total(), device.base);
    EXPECT_LE(plan.ranks[r].memory.total(), device.memory);
  }
  EXPECT_GT(plan.predicted_step.count, 0);
  EXPECT_GT(plan.data_parallel.busy.count, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ShippedCluster, ::testing::ValuesIn(shipped_clusters()),
                         [](const auto& test) { return "of_" + test.param; });

// The slower card holds its stage back, and data parallel on both waits for it.
TEST(ShippedClusters, MixedCardsRunAtTheirOwnSpeed) {
  const Cluster mixed = read_cluster(kConfigs + "clusters/2x4080_2x3090.yaml");
  const BlockGraph graph = build_training_graph(
      read_model_config(kConfigs + "models/sd15_controlnet.yaml"), 512, 512, {}, "fp16");
  const ClusterCosts costs = analytic_cluster_costs(graph, mixed, "fp16", 1);
  ASSERT_EQ(costs.kinds(), 2);
  EXPECT_EQ(costs.of_rank(1).device, "rtx4080");
  EXPECT_EQ(costs.of_rank(2).device, "rtx3090");
  const std::string block = "unet.down_blocks.1.resnets.1";  // a convolution decides: compute
  EXPECT_LT(costs.of_rank(1).blocks.at(block).forward.median,
            costs.of_rank(2).blocks.at(block).forward.median);
}

// Level 0 at 512 px has 4,096 rows and 8 heads: a score matrix of 512 MiB in fp32.
TEST(ShippedClusters, MathAttentionShowsWhatFusedAttentionSaves) {
  Device device = read_device(kConfigs + "devices/rtx3090.yaml");
  const BlockGraph graph = build_training_graph(
      read_model_config(kConfigs + "models/sd15_controlnet.yaml"), 512, 512, {}, "fp16");
  const std::string name = "controlnet.down_blocks.0.attentions.0";
  const BlockCost flash = analytic_cost_table(graph, device, "fp16", 1).blocks.at(name);
  device.attention = AttentionKernel::kMath;
  const BlockCost math = analytic_cost_table(graph, device, "fp16", 1).blocks.at(name);
  EXPECT_GT(math.saved_internal.mib(), flash.saved_internal.mib() + 512);
  // Two more of them in its backward pass, when what the feed-forward part kept is free already.
  EXPECT_GT(math.workspace_backward.mib(), flash.workspace_backward.mib() + 900);
  EXPECT_GT(math.forward.median.count, 2 * flash.forward.median.count);
}

}  // namespace
}  // namespace stagecraft
