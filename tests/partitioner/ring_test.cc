// Rings and buckets by hand.
#include "partitioner/alternatives/ring.h"

#include <gtest/gtest.h>

#include "partitioner/alternatives/buckets.h"
#include "partitioner/base/error.h"
#include "tests/support/chain_graph.h"
#include "tests/support/expect_error.h"
#include "tests/support/made_up_costs.h"

namespace stagecraft {
namespace {

constexpr int64_t kOneMib = 1 << 20;
using Ready = std::vector<ReadyGradients>;

TEST(Ring, PassesOneNthInEachRound) {
  const Cluster cluster = testing::plain_cluster(4, 1e9, {1000});
  const Ring ring(cluster, {0, 1, 2, 3});
  EXPECT_EQ(ring.reduce_scatter({8000}), Nanos{3 * (1000 + 2000)});
  EXPECT_EQ(ring.all_gather({8000}), Nanos{9000});
  EXPECT_EQ(ring.all_reduce({8000}), Nanos{18000});
}

TEST(Ring, OfOneTakesNoTime) {
  const Ring ring(testing::plain_cluster(4, 1e9, {1000}), {2});
  EXPECT_EQ(ring.all_reduce({8000}), Nanos{});
  Device device;
  device.comm_buffer_per_peer = {5};
  EXPECT_EQ(ring_buffers(device, 1), Bytes{});
  EXPECT_EQ(ring_buffers(device, 2), Bytes{20});
}

TEST(Ring, TheSlowestLinkDecides) {
  Cluster cluster = testing::plain_cluster(4, 1e9, {1000});
  cluster.host_of_rank = {0, 0, 1, 1};
  cluster.between_hosts = {.bandwidth = 1e8, .latency = {50'000}};
  EXPECT_EQ(Ring(cluster, {0, 1}).reduce_scatter({8000}), Nanos{1000 + 4000});
  EXPECT_EQ(Ring(cluster, {0, 2}).reduce_scatter({8000}), Nanos{50'000 + 40'000});
  EXPECT_EQ(Ring(cluster, {0, 1, 2, 3}).reduce_scatter({8000}), Nanos{3 * (50'000 + 20'000)});
}

TEST(GradientBuckets, AreCompleteWhenTheirBlockIs) {
  const BlockGraph graph = testing::chain_graph(3, 1);
  CostTable costs = testing::uniform_costs(graph);
  // Blocks 2 and 1 take 8 + 12 ns a sample; block 0 is frozen and has no backward.
  EXPECT_EQ(gradients_of(graph, costs, {.blocks = {0, 1, 2}, .start = {100}, .samples = 2}),
            (Ready{{.at = {140}, .bytes = {40}}, {.at = {180}, .bytes = {40}}}));
  EXPECT_EQ(gradients_of(graph, costs, {.blocks = {0}, .start = {100}, .samples = 2}), Ready{});
}

// 30 MiB ready at 10, 30 more at 20: buckets of 25 at 10 and at 20, and 10 that are left at 20. A
// bucket takes 4 ns a MiB.
TEST(GradientBuckets, WaitForTheirLastByteAndForEachOther) {
  const auto duration = [](Bytes bytes) { return Nanos{bytes.count / kOneMib * 4}; };
  const Ready pass = {{.at = {10}, .bytes = {30 * kOneMib}}, {.at = {20}, .bytes = {30 * kOneMib}}};
  EXPECT_EQ(end_of_buckets({pass}, duration), Nanos{10 + 100 + 100 + 40});
  // A second pass starts its own buckets: 10 left of the first are not mixed with it.
  EXPECT_EQ(end_of_buckets({pass, {{.at = {1000}, .bytes = {5 * kOneMib}}}}, duration),
            Nanos{1020});
  EXPECT_EQ(end_of_buckets({pass, {{.at = {30}, .bytes = {5 * kOneMib}}}}, duration), Nanos{270});
  EXPECT_EQ(end_of_buckets({{}}, duration), Nanos{});
}

TEST(GradientBuckets, ASumWaitsForTheSlowest) {
  const Ready fast = {{.at = {1}, .bytes = {4}}, {.at = {9}, .bytes = {4}}};
  const Ready slow = {{.at = {3}, .bytes = {4}}, {.at = {5}, .bytes = {4}}};
  EXPECT_EQ(latest({fast, slow}), (Ready{{.at = {3}, .bytes = {4}}, {.at = {9}, .bytes = {4}}}));
  EXPECT_EQ(caught([&] { latest({fast, {}}); }).code, ExitCode::kInternal);
}

}  // namespace
}  // namespace stagecraft
