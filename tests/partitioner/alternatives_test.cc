// One device, data parallel, the sharded optimizer and replicas: against hand-made numbers and
// against each other.
#include "partitioner/alternatives/alternatives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/alternatives/data_parallel.h"
#include "partitioner/alternatives/known_trainers.h"
#include "partitioner/alternatives/one_device.h"
#include "partitioner/alternatives/replicas.h"
#include "partitioner/base/error.h"
#include "tests/support/chain_graph.h"
#include "tests/support/made_up_costs.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::chain_graph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::plain_cluster;
using testing::uniform_costs;

// Everything on one stage, on rank 0.
Placement whole(const BlockGraph& graph) {
  Placement placement;
  placement.stage_of_block.assign(graph.blocks.size(), 0);
  placement.rank_of_stage = {0};
  placement.recompute.assign(graph.blocks.size(), false);
  return placement;
}

// Four blocks of 10 parameters, all trained: 40 bytes of gradients each, forward 10 ns, backward
// 20 ns a sample.
struct SmallJob {
  BlockGraph graph = chain_graph(4);
  ClusterCosts costs{uniform_costs(graph)};
  Cluster cluster;
  int64_t batch = 4, micro_batch = 1;

  explicit SmallJob(int devices, double bandwidth = 1e18, Nanos latency = {})
      : cluster(plain_cluster(devices, bandwidth, latency)) {
    for (Device& device : cluster.devices) {
      device.memory = {1 << 20};
      device.comm_buffer_per_peer = {5};
    }
  }
  TrainingJob job() const {
    return {.graph = graph,
            .costs = costs,
            .cluster = cluster,
            .batch = batch,
            .micro_batch = micro_batch};
  }
};

TEST(Alternatives, OneDeviceTakesAllMicroBatchesOneAfterTheOther) {
  const SmallJob small(1);
  const OneDevice one = on_one_device(small.job(), 0, 4);
  EXPECT_EQ(one.step.makespan, Nanos{4 * 4 * 30});
  EXPECT_EQ(one.memory[MemoryLine::kGradients], Bytes{160});
}

TEST(Alternatives, DataParallelGivesEachDeviceItsPartInMicroBatches) {
  SmallJob small(2);
  small.batch = 6;
  small.micro_batch = 2;  // three samples a device: 2 and 1
  const DataParallel all = data_parallel(small.job());
  EXPECT_EQ(all.devices, 2);
  EXPECT_EQ(all.samples, 3);
  EXPECT_EQ(all.step, on_one_device(small.job(), 0, 3).step.makespan);
  EXPECT_EQ(all.exposed, Nanos{});
}

// 160 bytes in one bucket, ready when all is computed: 2 rounds of 80 bytes, 1 ns a byte and 7 ns
// before the first.
TEST(Alternatives, TheLastBucketHidesBehindNothing) {
  const SmallJob small(2, 1e9, {7});
  const DataParallel all = data_parallel(small.job());
  EXPECT_EQ(all.exposed, Nanos{2 * (7 + 80)});
  EXPECT_EQ(all.step, Nanos{2 * 4 * 30 + 174});
}

TEST(Alternatives, DataParallelHoldsWhatOneDeviceHoldsAndTheBuffersOfTheRing) {
  const SmallJob small(2);
  const RankMemory one = on_one_device(small.job(), 0, 2).memory;
  RankMemory expected = one;
  expected[MemoryLine::kCommBuffers] = {20};  // two neighbours, both ways
  EXPECT_EQ(data_parallel(small.job()).memory, expected);
}

TEST(Alternatives, DevicesWithoutASampleTakeNoPart) {
  SmallJob small(8, 1e9);
  small.batch = 3;
  const DataParallel all = data_parallel(small.job());
  EXPECT_EQ(all.devices, 3);
  EXPECT_EQ(all.samples, 1);
}

TEST(Alternatives, TheShardedOptimizerKeepsItsPart) {
  const SmallJob small(2);
  const RankMemory whole = data_parallel(small.job()).memory;
  const RankMemory part = sharded_optimizer(small.job()).memory;
  EXPECT_EQ(part[MemoryLine::kOptimizer].count, whole[MemoryLine::kOptimizer].count / 2);
  // Half of them, and two buckets under way.
  EXPECT_EQ(part[MemoryLine::kGradients].count,
            whole[MemoryLine::kGradients].count / 2 + 2 * 25 * (1 << 20));
  EXPECT_EQ(part[MemoryLine::kWeights], whole[MemoryLine::kWeights]);
}

// Two micro-batches a device: the first scatters in 80 ns, behind the forward and backward of the
// second (120 ns); that one scatters in 80, then the weights are gathered in 80.
TEST(Alternatives, TheShardedOptimizerScattersEveryMicroBatch) {
  SmallJob small(2, 1e9);
  EXPECT_EQ(sharded_optimizer(small.job()).exposed, Nanos{80 + 80});
  // On a link half as fast the first ends 40 ns after the second is computed.
  for (auto* link : {&small.cluster.link}) link->bandwidth = 0.5e9;
  EXPECT_EQ(sharded_optimizer(small.job()).exposed, Nanos{40 + 160 + 160});
}

TEST(Alternatives, TheSlowestDeviceDecidesAndTheFullestIsNamed) {
  SmallJob small(2);
  CostTable slow = small.costs.of_kind(0);
  for (auto& [name, cost] : slow.blocks) cost.forward.median = {100};
  small.costs = ClusterCosts({small.costs.of_kind(0), slow}, {0, 1});
  small.cluster.devices[0].memory = {1 << 10};
  const DataParallel all = data_parallel(small.job());
  EXPECT_EQ(all.step, Nanos{2 * 4 * (100 + 20)});
  EXPECT_EQ(all.rank, 0);
}

// A replica of one stage is data parallel: the same memory, step and exposed sum.
TEST(Alternatives, ReplicasOfOneStageAreDataParallel) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {});
    const ClusterCosts costs(testing::random_costs(graph, seed));
    Cluster cluster = plain_cluster(3, 1e8, {5});
    for (Device& device : cluster.devices) device.comm_buffer_per_peer = {100};
    const TrainingJob job{
        .graph = graph, .costs = costs, .cluster = cluster, .batch = 15, .micro_batch = 2};
    const DataParallel all = data_parallel(job);
    const ReplicatedPipeline replicas = replicate(job, whole(graph), 3, "1f1b");
    EXPECT_EQ(replicas.memory, all.memory) << seed;
    EXPECT_EQ(replicas.step, all.step) << seed;
    EXPECT_EQ(replicas.exposed, all.exposed) << seed;
  }
}

TEST(Alternatives, OneReplicaIsThePipelineItself) {
  SmallJob small(2);
  Placement placement = whole(small.graph);
  placement.stage_of_block = {0, 0, 1, 1};
  placement.rank_of_stage = {0, 1};
  const std::vector<int64_t> sizes(4, 1);
  const Schedule schedule = insert_messages(
      small.graph, placement, generate_order("1f1b", small.graph, placement, 4), sizes);
  const ReplicatedPipeline one = replicate(small.job(), placement, 1, "1f1b");
  EXPECT_EQ(one.step,
            simulate(small.graph, placement, small.costs, small.cluster, schedule, sizes).makespan);
  EXPECT_EQ(one.exposed, Nanos{});
}

// Stage 0 ends last and sums 80 bytes in 2 rounds of 40 ns after it; stage 1 has summed long
// before.
TEST(Alternatives, AStageIsSummedWhileOthersStillCompute) {
  SmallJob small(4, 1e9);
  Placement placement = whole(small.graph);
  placement.stage_of_block = {0, 0, 1, 1};
  placement.rank_of_stage = {0, 1};
  const ReplicatedPipeline both = replicate(small.job(), placement, 2, "1f1b");
  EXPECT_EQ(both.samples, 2);
  EXPECT_EQ(both.exposed, Nanos{80});
}

TEST(Alternatives, ReplicasDivideTheDevices) {
  EXPECT_THAT(stages_of_replicas(12), ElementsAre(2, 3, 4, 6));
  EXPECT_THAT(stages_of_replicas(7), ElementsAre());
  EXPECT_THAT(stages_of_replicas(1), ElementsAre());
}

// Blocks 0 and 1 are frozen with nothing trained above them: forward only. 2 and 3: forward twice,
// inputs 8 and weights 12 ns.
TEST(Alternatives, KnownTrainersRunCheckpointedBlocksTwice) {
  SmallJob small(1);
  small.graph = chain_graph(4, 2);
  small.costs = ClusterCosts(uniform_costs(small.graph));
  EXPECT_EQ(known_trainer(small.job(), {}).step, Nanos{4 * (40 + 2 * (10 + 8 + 12))});
}

// A frozen block that gradients pass through: its weights' gradients are computed all the same, for
// as long as its inputs'.
TEST(Alternatives, KnownTrainersComputeGradientsThatNobodyUses) {
  SmallJob small(1);
  small.graph.blocks[3].trainable = false;
  derive_states(small.graph);
  ASSERT_EQ(small.graph.blocks[3].state, BlockState::kFI);
  CostTable costs = uniform_costs(small.graph);
  costs.blocks.at("block3").backward_weight.median = {0};
  small.costs = ClusterCosts(costs);
  EXPECT_EQ(known_trainer(small.job(), {}).step, Nanos{4 * (40 + 3 * 30 + (10 + 8 + 8))});
}

TEST(Alternatives, OneDeviceHasNoOtherWaysThanItself) {
  const SmallJob small(1);
  const auto found = find_alternatives(small.job(), {}, "1f1b");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "one device, as known trainers do it");
  EXPECT_EQ(found[1].name, "one device, done right");
}

TEST(Alternatives, AWholeBatchOnEachDeviceIsOnAllOfThem) {
  SmallJob small(4);
  small.batch = 2;
  const auto found = find_alternatives(small.job(), {}, "1f1b");
  EXPECT_THAT(found[2].how, HasSubstr("1 sample on each device"));
  EXPECT_EQ(found[3].name, "the same, a batch of 2 on each device");
  EXPECT_EQ(found[3].other_batch, 8);
}

TEST(Alternatives, AreGivenWithWhatTheyTakeAlsoWhereTheyDoNotFit) {
  SmallJob small(4);
  for (Device& device : small.cluster.devices) device.memory = {10};
  const auto found = find_alternatives(small.job(), {}, "1f1b");
  ASSERT_EQ(found.size(), 7u);
  EXPECT_EQ(found[3].name, "the same, a batch of 4 on each device");
  EXPECT_EQ(found[3].other_batch, 16);
  EXPECT_EQ(found[6].name, "2 replicas of 2 stages");
  EXPECT_THAT(found[6].how, HasSubstr("2 samples as 2 micro-batches on each replica"));
  for (const Alternative& other : found) {
    EXPECT_FALSE(other.fits()) << other.name;
    EXPECT_GT(other.step.count, 0) << other.name;
  }
}

}  // namespace
}  // namespace stagecraft
