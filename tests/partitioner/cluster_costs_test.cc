#include "partitioner/cost/cluster_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/cost/analytic.h"
#include "tests/support/chain_graph.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_up_costs.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using testing::chain_graph;
using ::testing::HasSubstr;
using testing::uniform_costs;

CostTable table_of(const std::string& device) {
  CostTable table = uniform_costs(chain_graph(1));
  table.device = device;
  table.width = table.height = 64;
  table.graph_hash = std::string(64, 'a');
  return table;
}

TEST(ClusterCosts, OneTableServesEveryRank) {
  const ClusterCosts costs(table_of("a"));
  EXPECT_EQ(costs.kinds(), 1);
  EXPECT_EQ(costs.kind_of_rank(5000), 0);
  EXPECT_EQ(costs.of_rank(5000).device, "a");
  EXPECT_EQ(costs.micro_batch(), 1);
  EXPECT_EQ(costs.precision(), "fp32");
}

TEST(ClusterCosts, EveryRankHasTheTableOfItsKind) {
  const ClusterCosts costs({table_of("a"), table_of("b")}, {1, 0, 1});
  EXPECT_EQ(costs.kinds(), 2);
  EXPECT_EQ(costs.of_rank(0).device, "b");
  EXPECT_EQ(costs.of_rank(1).device, "a");
  EXPECT_EQ(costs.of_kind(costs.kind_of_rank(2)).device, "b");
  EXPECT_THROW(costs.of_rank(3), InternalError);
}

TEST(ClusterCosts, SelectedRanksKeepTheirTablesWhenTheWholeIsGone) {
  const ClusterCosts part = ClusterCosts({table_of("a"), table_of("b")}, {1, 0, 1}).select({2, 1});
  EXPECT_EQ(part.of_rank(0).device, "b");
  EXPECT_EQ(part.of_rank(1).device, "a");
}

TEST(ClusterCosts, TablesOfDifferentJobsAreRefusedNamingBoth) {
  const auto refused = [](const auto& change) {
    CostTable other = table_of("b");
    change(other);
    const auto error = caught([&] { ClusterCosts({table_of("a"), other}, {0, 1}); });
    EXPECT_EQ(error.code, ExitCode::kPlanMismatch);
    return error.message;
  };
  EXPECT_THAT(refused([](CostTable& t) { t.micro_batch = 3; }),
              HasSubstr("differ in micro-batch: a has 1, b has 3"));
  EXPECT_THAT(refused([](CostTable& t) { t.precision = "fp16"; }),
              HasSubstr("precision: a has fp32, b has fp16"));
  EXPECT_THAT(refused([](CostTable& t) { t.height = 128; }),
              HasSubstr("pixels: a has 64x64, b has 64x128"));
  EXPECT_THAT(refused([](CostTable& t) { t.graph_hash = std::string(64, 'b'); }),
              AllOf(HasSubstr("graph: a has aaaaaaaaaaaa, b has bbbbbbbbbbbb")));
}

TEST(ClusterCosts, AnalyticTablesAreMadeOncePerKindOfDevice) {
  const BlockGraph graph = chain_graph(2);
  Cluster cluster;
  for (const double flops : {1e9, 2e9, 1e9}) {
    Device& device = cluster.devices.emplace_back();
    device.memory = {static_cast<int64_t>(cluster.devices.size())};
    device.flops_fp32 = flops;
    device.bandwidth = 1e9;
  }
  const ClusterCosts costs = analytic_cluster_costs(graph, cluster, "fp32", 1);
  EXPECT_EQ(costs.kinds(), 2);
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(costs.of_rank(r), analytic_cost_table(graph, cluster.devices[r], "fp32", 1));
  }
}

}  // namespace
}  // namespace stagecraft
