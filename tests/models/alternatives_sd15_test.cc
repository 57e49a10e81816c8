// The other ways to train the real Stable Diffusion 1.5 ControlNet, against what was seen.
#include <gtest/gtest.h>

#include <iostream>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "models/network/other_parameters.h"
#include "partitioner/alternatives/alternatives.h"
#include "partitioner/alternatives/known_trainers.h"
#include "partitioner/base/format.h"
#include "partitioner/cost/analytic.h"

namespace stagecraft {
namespace {

// ControlNet at 512 px in fp16 on four cards like an RTX 3090 but for their memory.
class AlternativesSd15 : public ::testing::Test {
 protected:
  std::vector<Alternative> find(int64_t batch, double memory_mib = 24576) {
    for (Device& device : cluster_.devices) device.memory = Bytes::from_mib(memory_mib);
    const TrainingJob job{
        .graph = graph_, .costs = costs_, .cluster = cluster_, .batch = batch, .micro_batch = 1};
    const auto found = find_alternatives(job, other_parameters(model_), "1f1b");
    for (const Alternative& other : found) {
      std::cout << other.name << ": " << mib_text(other.memory) << ", " << millis_text(other.step)
                << ", exposed " << millis_text(other.exposed) << "\n";
    }
    return found;
  }
  static const Alternative& named(const std::vector<Alternative>& found, const std::string& name) {
    for (const Alternative& other : found) {
      if (other.name == name) return other;
    }
    throw std::runtime_error("no alternative " + name);
  }

  const std::string configs_ = STAGECRAFT_SOURCE_DIR "/configs/";
  ModelConfig model_ = read_model_config(configs_ + "models/sd15_controlnet.yaml");
  BlockGraph graph_ = build_training_graph(model_, 512, 512, {}, "fp16");
  Cluster cluster_ = read_cluster(configs_ + "clusters/4x3090.yaml");
  ClusterCosts costs_ = analytic_cluster_costs(graph_, cluster_, "fp16", 1);
};

// cldm with batch 4 on one such card was seen to take 22,542 MiB; on four of them, with the batch
// on each, the reducer's buckets come on top: 27,199. Reserved and not handed out, cuDNN's
// workspaces and pictures drawn on the way are not in the estimate.
TEST_F(AlternativesSd15, KnownTrainersComeNearWhatWasSeen) {
  const TrainingJob job{.graph = graph_, .costs = costs_, .cluster = cluster_};
  const Bytes one = known_trainer(job, other_parameters(model_)).memory;
  const Alternative of_each = named(find(4), "the same, a batch of 4 on each device");
  const Bytes each = of_each.memory;
  EXPECT_EQ(of_each.other_batch, 16);
  std::cout << "one " << mib_text(one) << ", with the batch on each " << mib_text(each) << "\n";
  EXPECT_LT(one.mib(), 22542);
  EXPECT_GT(one.mib(), 0.92 * 22542);
  EXPECT_GT(each.mib(), 24576);  // does not fit, as was seen
  EXPECT_GT(each.mib(), 0.93 * 27199);
}

// Weights of the UNet in half, of the ControlNet in half and fp32, gradients and two moments in
// fp32.
TEST_F(AlternativesSd15, DoneRightTakesAThirdOfIt) {
  const auto found = find(4);
  const double one = named(found, "one device, done right").memory.mib();
  const double parameters = (859'520'964 * 2.0 + 361'279'120 * 18.0) / (1 << 20);
  EXPECT_GT(one, parameters);
  EXPECT_LT(one, parameters + 1400);  // context, one sample in flight, slack
  EXPECT_NEAR(named(found, "data parallel, done right").memory.mib(), one + 48, 0.1);
  EXPECT_NEAR(named(found, "data parallel, sharded optimizer (ZeRO-2)").memory.mib(),
              one + 48 + 50 - 0.75 * 361'279'120 * 16.0 / (1 << 20), 0.1);
}

// 2,168 MB of all-reduce at 10 GB/s, of which the backward of one sample hides little.
TEST_F(AlternativesSd15, TheExposedSumIsWhatTheBackwardDoesNotHide) {
  const Alternative all = named(find(4), "data parallel, done right");
  const double sum_ms = 2 * 3.0 / 4 * 361'279'120 * 4 / 10e9 * 1e3;
  EXPECT_LT(all.exposed.millis(), sum_ms);
  EXPECT_GT(all.exposed.millis(), 0.85 * sum_ms);
  // More samples on each device make it no shorter: only the last micro-batch hides it.
  EXPECT_EQ(named(find(16), "data parallel, done right").exposed, all.exposed);
}

TEST_F(AlternativesSd15, OnCardsOf8GiBOnlyTheShardedOptimizerFits) {
  const auto found = find(4, 8192);
  for (const Alternative& other : found) {
    const bool may_fit = other.name.find("ZeRO") != std::string::npos ||
                         other.name.find("replicas") != std::string::npos;
    EXPECT_EQ(other.fits(), may_fit) << other.name;
  }
}

}  // namespace
}  // namespace stagecraft
