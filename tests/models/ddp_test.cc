// The account of one device and data parallel, on the real SD 1.5 ControlNet graph.
#include "partitioner/plan/ddp.h"

#include <gtest/gtest.h>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "models/network/other_parameters.h"

namespace stagecraft {
namespace {

MemoryAccount account_of(const TrainableConfig& trainable) {
  const ModelConfig model =
      read_model_config(STAGECRAFT_SOURCE_DIR "/configs/models/sd15_controlnet.yaml");
  return known_trainers_account(build_training_graph(model, 512, 512, trainable),
                                other_parameters(model));
}

Bytes line(const MemoryAccount& account, const std::string& name, bool data_parallel = false) {
  for (const AccountLine& line : account.lines) {
    if (line.name == name) return data_parallel ? line.data_parallel : line.one_device;
  }
  ADD_FAILURE() << "no line " << name;
  return {};
}

// The figures are those of a ControlNet training by cldm on one and on four 24 GB cards: parameters
// times 4 bytes.
TEST(DdpAccount, ReproducesTheStaticMemoryOfCldm) {
  const MemoryAccount account = account_of({});
  EXPECT_NEAR(line(account, "weights: unet").mib(), 3278.8, 0.05);
  EXPECT_NEAR(line(account, "weights: controlnet").mib(), 1378.2, 0.05);
  EXPECT_NEAR(line(account, "weights: vae").mib(), 319.1, 0.05);
  EXPECT_NEAR(line(account, "weights: text encoder").mib(), 469.4, 0.05);
  EXPECT_NEAR(line(account, "gradients: controlnet").mib(), 1378.2, 0.05);
  EXPECT_NEAR(line(account, "gradients nobody uses: unet").mib(), 1948.6, 0.05);
  EXPECT_NEAR(line(account, "Adam m, v").mib(), 2756.3, 0.05);
  const std::string buckets = "DDP reducer buckets, 1,220,800,084 elements";
  EXPECT_EQ(line(account, buckets).count, 0);
  EXPECT_NEAR(line(account, buckets, true).mib(), 4657.0, 0.05);
  EXPECT_NEAR(account.sum().one_device.mib(), 11528.6, 0.05);
  EXPECT_NEAR(account.sum().data_parallel.mib(), 16185.6, 0.05);
  EXPECT_EQ(account.lines.size(), 8u);
}

TEST(DdpAccount, UnlockedDecoderIsTrainedInsteadOfWasted) {
  const MemoryAccount account = account_of({.sd_locked = false});
  EXPECT_NEAR(account.sum().one_device.mib(), 15425.8, 0.05);
  EXPECT_NEAR(line(account, "gradients: unet").mib(), 1948.6, 0.05);
}

TEST(DdpAccount, ZeroConvolutionsThatNeverRunHaveNeitherGradientNorMoments) {
  // 12 zero convolutions hold 9,840,000 parameters.
  EXPECT_EQ(line(account_of({.only_mid_control = true}), "gradients: controlnet").count,
            (361'279'120 - 9'840'000) * 4);
}

TEST(DdpAccount, DoneRightHasTheLinesThatEitherHolds) {
  RankMemory one_device, data_parallel;
  one_device[MemoryLine::kWeights] = data_parallel[MemoryLine::kWeights] = {100};
  one_device[MemoryLine::kActivations] = {50};
  data_parallel[MemoryLine::kCommBuffers] = {7};
  const MemoryAccount account = done_right_account(one_device, data_parallel);
  EXPECT_EQ(account.lines.size(), 3u);
  EXPECT_EQ(account.sum().one_device, Bytes{150});
  EXPECT_EQ(account.sum().data_parallel, Bytes{107});
}

}  // namespace
}  // namespace stagecraft
