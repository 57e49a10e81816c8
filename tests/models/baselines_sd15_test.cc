// The known methods on the real Stable Diffusion 1.5, against figures found with other programs.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {
namespace {

// Layers as an nn.Sequential of the network has them, and what each weighs.
struct Layers {
  std::vector<int64_t> work, parameters, trainable;
};

// Multiply-adds once for the forward pass, once for the gradients of the inputs and once for those
// of the weights, where they are needed.
int64_t work_of(const Block& block) {
  const bool inputs = block.state == BlockState::kFI || block.state == BlockState::kFIW;
  return block.macs() * (1 + (inputs ? 1 : 0) + (block.trainable ? 1 : 0));
}

// `joined`: a resnet with its transformer is one layer, and so is the middle.
Layers layers_of(const std::string& what, bool joined) {
  const ModelConfig model =
      read_model_config(STAGECRAFT_SOURCE_DIR "/configs/models/sd15_controlnet.yaml");
  const BlockGraph graph = build_training_graph(model, 512, 512, {.what = what}, "fp16");
  Layers layers;
  bool join_next = false;
  for (const Block& block : graph.blocks) {
    const bool middle = block.section == "middle" && !block.name.ends_with("resnets.0");
    const bool join = join_next || (joined && (middle || block.kind == BlockKind::kTransformer));
    if (!join) {
      layers.work.push_back(0);
      layers.parameters.push_back(0);
      layers.trainable.push_back(0);
    }
    layers.work.back() += work_of(block);
    layers.parameters.back() += block.parameters();
    layers.trainable.back() += block.trainable ? block.parameters() : 0;
    join_next = joined && block.kind == BlockKind::kTimeEmbedding;
  }
  return layers;
}

double largest_over_mean(const std::vector<int64_t>& weights, const Cuts& cuts) {
  int64_t largest = 0;
  for (size_t i = 1; i < cuts.size(); ++i) {
    largest = std::max(largest, std::accumulate(weights.begin() + cuts[i - 1],
                                                weights.begin() + cuts[i], int64_t{0}));
  }
  const int64_t sum = std::accumulate(weights.begin(), weights.end(), int64_t{0});
  return static_cast<double>(largest) * static_cast<double>(cuts.size() - 1) /
         static_cast<double>(sum);
}

// The whole UNet as 29 layers: DeepSpeed's and torchgpipe's own functions, run on the same counts,
// gave 2.15, 1.55 and 1.13.
TEST(BaselinesSd15, WholeUNetInFourStagesIsSplitAsTheKnownProgramsDo) {
  const Layers layers = layers_of("unet", true);
  ASSERT_EQ(layers.work.size(), 29u);
  EXPECT_EQ(std::accumulate(layers.parameters.begin(), layers.parameters.end(), int64_t{0}),
            859'520'964);
  EXPECT_NEAR(largest_over_mean(layers.work, least_spread_cuts(layers.trainable, 4)), 2.15, 0.005);
  EXPECT_NEAR(largest_over_mean(layers.work, uniform_cuts(29, 4)), 1.55, 0.005);
  EXPECT_NEAR(largest_over_mean(layers.work, block_partition_cuts(layers.work, 4)), 1.13, 0.005);
  EXPECT_NEAR(largest_over_mean(layers.parameters, least_spread_cuts(layers.parameters, 4)), 1.08,
              0.005);
}

// With 47 blocks that can be cut: the enumerated optima.
TEST(BaselinesSd15, LeastLargestStageOfTheWholeUNet) {
  const Layers layers = layers_of("unet", false);
  ASSERT_EQ(layers.work.size(), 47u);
  EXPECT_LE(largest_over_mean(layers.work, min_max_cuts(layers.work, 4)), 1.033);
  EXPECT_LE(largest_over_mean(layers.work, min_max_cuts(layers.work, 8)), 1.075);
}

// Counting trainable parameters gives the frozen decoder no weight: all of it ends on the last
// stage, twice the mean. Counting all of them is little better.
TEST(BaselinesSd15, ParametersMisjudgeControlNetTraining) {
  const Layers layers = layers_of("controlnet", false);
  EXPECT_NEAR(largest_over_mean(layers.work, least_spread_cuts(layers.trainable, 4)), 2.04, 0.005);
  EXPECT_NEAR(largest_over_mean(layers.work, least_spread_cuts(layers.parameters, 4)), 1.79, 0.005);
}

}  // namespace
}  // namespace stagecraft
