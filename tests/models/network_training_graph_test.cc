// The training graph at real size. Figures: published parameter counts of SD 1.5 and ControlNet,
// and the project's derivation of multiply-adds and saved bytes, which a run of diffusers under a
// tracking allocator confirmed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/network/build.h"
#include "partitioner/base/error.h"
#include "partitioner/graph/placement.h"
#include "tests/support/tiny_model.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

BlockGraph real(const TrainableConfig& trainable = {}, const std::string& precision = "fp32") {
  return build_training_graph(ModelConfig{}, 512, 512, trainable, precision);
}

const Block& block_of(const BlockGraph& graph, const std::string& name) {
  const int index = graph.find_block(name);
  if (index < 0) throw InternalError("no block " + name);
  return graph.blocks[index];
}

template <typename Count>
std::map<std::string, int64_t> totals(const BlockGraph& graph, Count count) {
  std::map<std::string, int64_t> sums;
  for (const Block& block : graph.blocks) {
    sums[block.part] += count(block);
    sums[block.part + "." + block.section] += count(block);
  }
  return sums;
}

int64_t trainable_tensors(const BlockGraph& graph) {
  int64_t count = 0;
  for (const Block& block : graph.blocks)
    if (block.trainable) count += static_cast<int64_t>(block.params.size());
  return count;
}

std::vector<std::string> input_names(const BlockGraph& graph, const std::string& block) {
  std::vector<std::string> names;
  for (int input : block_of(graph, block).inputs) names.push_back(graph.values[input].name);
  return names;
}

// States of all blocks whose name starts with `prefix`.
std::set<BlockState> states_of(const BlockGraph& graph, const std::string& prefix) {
  std::set<BlockState> states;
  for (const Block& block : graph.blocks)
    if (block.name.starts_with(prefix)) states.insert(block.state);
  return states;
}

TEST(TrainingGraph, ParametersOfEachPartAndSection) {
  const auto sums = totals(real(), [](const Block& block) { return block.parameters(); });
  EXPECT_EQ(sums.at("unet"), 859'520'964);
  EXPECT_EQ(sums.at("unet.time_embed"), 2'050'560);
  EXPECT_EQ(sums.at("unet.input"), 249'624'320);
  EXPECT_EQ(sums.at("unet.middle"), 97'038'080);
  EXPECT_EQ(sums.at("unet.output"), 510'795'840);
  EXPECT_EQ(sums.at("unet.out"), 12'164);
  EXPECT_EQ(sums.at("controlnet"), 361'279'120);
  EXPECT_EQ(sums.at("controlnet.hint"), 1'086'480);
  EXPECT_EQ(sums.at("controlnet.zero_convs"), 9'840'000);
  EXPECT_EQ(sums.at("controlnet.middle_out"), 1'639'680);
}

// Convolutions, linear layers and both products of attention.
TEST(TrainingGraph, MultiplyAddsOfOneSampleAt512) {
  const auto sums = totals(real(), [](const Block& block) { return block.macs(); });
  EXPECT_NEAR(static_cast<double>(sums.at("unet")) / 1e9, 401.6, 0.1);
  EXPECT_NEAR(static_cast<double>(sums.at("controlnet")) / 1e9, 141.6, 0.1);
}

TEST(TrainingGraph, HalfPrecisionHalvesEdgesButTheTimestepEmbeddingStaysSingle) {
  const BlockGraph half = real({}, "fp16");
  for (const Value& value : half.values)
    EXPECT_EQ(value.dtype, value.name == kInputTimesteps ? DType::kI64 : DType::kF16) << value.name;
  const Block& time = block_of(half, "unet.time_embedding");
  EXPECT_EQ(time.tensors[time.ops[0].output].dtype, DType::kF32);
}

TEST(TrainingGraph, ControlNetTrainingHasFourKindsOfBlocks) {
  const BlockGraph graph = real();
  for (const char* frozen : {"unet.time", "unet.conv_in", "unet.down_blocks", "unet.mid_block"})
    EXPECT_THAT(states_of(graph, frozen), ElementsAre(BlockState::kF)) << frozen;
  for (const char* passing : {"unet.sum.", "unet.up_blocks", "unet.conv_out", "controlnet.sum."})
    EXPECT_THAT(states_of(graph, passing), ElementsAre(BlockState::kFI)) << passing;
  for (const char* first : {"controlnet.time_embedding", "controlnet.conv_in",
                            "controlnet.controlnet_cond_embedding.conv_in"})
    EXPECT_THAT(states_of(graph, first), ElementsAre(BlockState::kFW)) << first;
  for (const char* rest : {"controlnet.controlnet_cond_embedding.blocks", "controlnet.down_blocks",
                           "controlnet.mid_block", "controlnet.controlnet_down_blocks",
                           "controlnet.controlnet_mid_block"})
    EXPECT_THAT(states_of(graph, rest), ElementsAre(BlockState::kFIW)) << rest;
  EXPECT_EQ(trainable_tensors(graph), 340);
}

TEST(TrainingGraph, UnlockedDecoderTrainsButNotTheTimeEmbedding) {
  const BlockGraph graph = real({.sd_locked = false});
  EXPECT_THAT(states_of(graph, "unet.up_blocks"), ElementsAre(BlockState::kFIW));
  EXPECT_THAT(states_of(graph, "unet.conv_out"), ElementsAre(BlockState::kFIW));
  EXPECT_THAT(states_of(graph, "unet.time_embedding"), ElementsAre(BlockState::kF));
  EXPECT_THAT(states_of(graph, "unet.mid_block"), ElementsAre(BlockState::kF));
  EXPECT_EQ(trainable_tensors(graph), 728);
}

TEST(TrainingGraph, OnlyMidControlKeepsZeroConvolutionsThatNeverRun) {
  const BlockGraph graph = real({.only_mid_control = true});
  for (int i = 0; i < 12; ++i) {
    const Block& zero = block_of(graph, "controlnet.controlnet_down_blocks." + std::to_string(i));
    EXPECT_TRUE(zero.trainable);
    EXPECT_FALSE(zero.reaches_loss);
    EXPECT_TRUE(graph.values[zero.output].consumers.empty());
    EXPECT_EQ(graph.find_block("unet.sum." + std::to_string(i)), -1);
  }
  EXPECT_TRUE(block_of(graph, "controlnet.controlnet_mid_block").reaches_loss);
  EXPECT_THAT(input_names(graph, "unet.up_blocks.0.resnets.0"),
              ElementsAre("unet.sum.mid", "unet.down_blocks.3.resnets.1", "unet.time_embedding"));
  EXPECT_EQ(trainable_tensors(graph), 340);
}

TEST(TrainingGraph, WholeUNetTrainsWithoutControlNetAndSums) {
  const BlockGraph graph = real({.what = "unet"});
  for (const Block& block : graph.blocks) {
    EXPECT_EQ(block.part, "unet");
    EXPECT_NE(block.kind, BlockKind::kSum);
    EXPECT_TRUE(block.trainable) << block.name;
  }
  EXPECT_THAT(states_of(graph, "unet.down_blocks"), ElementsAre(BlockState::kFIW));
  EXPECT_EQ(block_of(graph, "unet.conv_in").state, BlockState::kFW);
  EXPECT_EQ(trainable_tensors(graph), 686);  // all of the UNet's
  const int temb = block_of(graph, "unet.time_embedding").output;
  EXPECT_EQ(graph.gradient_consumers(temb).size(), 22u);
}

TEST(TrainingGraph, ControlNetTimeEmbeddingHasTenGradientConsumers) {
  const BlockGraph graph = real();
  const int temb = block_of(graph, "controlnet.time_embedding").output;
  EXPECT_EQ(graph.gradient_consumers(temb).size(), 10u);
}

TEST(TrainingGraph, ResidualsJoinTheSkipsThatTheDecoderTakesFromTheEnd) {
  const BlockGraph graph = real();
  EXPECT_THAT(input_names(graph, "unet.sum.0"),
              ElementsAre("unet.conv_in", "controlnet.controlnet_down_blocks.0"));
  EXPECT_THAT(input_names(graph, "unet.sum.11"),
              ElementsAre("unet.down_blocks.3.resnets.1", "controlnet.controlnet_down_blocks.11"));
  EXPECT_THAT(input_names(graph, "unet.sum.mid"),
              ElementsAre("unet.mid_block.resnets.1", "controlnet.controlnet_mid_block"));
  EXPECT_THAT(input_names(graph, "unet.up_blocks.0.resnets.0"),
              ElementsAre("unet.sum.mid", "unet.sum.11", "unet.time_embedding"));
  EXPECT_THAT(input_names(graph, "unet.up_blocks.3.resnets.2"),
              ElementsAre("unet.up_blocks.3.attentions.1", "unet.sum.0", "unet.time_embedding"));
}

TEST(TrainingGraph, HintJoinsBehindConvInAndInResidualZero) {
  const BlockGraph graph = real();
  EXPECT_THAT(input_names(graph, "controlnet.sum.hint"),
              ElementsAre("controlnet.conv_in", "controlnet.controlnet_cond_embedding.conv_out"));
  EXPECT_THAT(input_names(graph, "controlnet.controlnet_down_blocks.0"),
              ElementsAre("controlnet.sum.hint"));
  EXPECT_THAT(input_names(graph, "controlnet.down_blocks.0.resnets.0"),
              ElementsAre("controlnet.sum.hint", "controlnet.time_embedding"));
}

TEST(TrainingGraph, EncoderGoesOnWithTheRawValue) {
  EXPECT_THAT(input_names(real(), "unet.down_blocks.0.resnets.1"),
              ElementsAre("unet.down_blocks.0.attentions.0", "unet.time_embedding"));
}

TEST(TrainingGraph, HintEncoderEndsWithoutAnActivation) {
  const BlockGraph graph = real();
  for (const Block& block : graph.blocks) {
    if (block.kind != BlockKind::kHintConv) continue;
    const bool last = block.name.ends_with("conv_out");
    EXPECT_EQ(block.ops.back().kind, last ? OpKind::kConv2d : OpKind::kSilu) << block.name;
  }
}

TEST(TrainingGraph, NormsUseTheReferencesEpsilons) {
  const BlockGraph graph = real();
  for (const Block& block : graph.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::kGroupNorm && op.kind != OpKind::kLayerNorm) continue;
      const bool small = op.kind == OpKind::kGroupNorm && block.kind == BlockKind::kTransformer;
      EXPECT_EQ(op.eps, small ? 1e-6 : 1e-5) << block.name;
    }
  }
}

TEST(TrainingGraph, ZeroConvolutionStandsRightBehindItsBlock) {
  const BlockGraph graph = real();
  for (const Block& block : graph.blocks) {
    if (block.kind != BlockKind::kZeroConv) continue;
    EXPECT_EQ(graph.values[block.inputs[0]].producer, graph.find_block(block.name) - 1);
  }
}

// 131 (hint) + 673 and 767 by the derivation in which stock autograd's GEGLU keeps GELU's output
// too; ours keeps GEGLU's input only. A tensor kept by several blocks (a skip: norm and zero
// convolution) counts once.
struct SavedMib {
  double kept = 0;
  double gelu_outputs = 0;
};
SavedMib saved_mib(const BlockGraph& graph, const std::string& part) {
  SavedMib sum;
  std::set<int> values;
  for (const Block& block : graph.blocks) {
    if (block.part != part) continue;
    std::vector<bool> carries;
    for (int input : block.inputs) carries.push_back(graph.values[input].carries_grad);
    const SavedTensors saved = saved_for_backward(block, carries);
    int64_t bytes = saved.extra_bytes;
    for (int tensor : saved.tensors) {
      const bool input = tensor < static_cast<int>(block.inputs.size());
      if (input && !values.insert(block.inputs[tensor]).second) continue;
      if (tensor == block.ops.back().output && !values.insert(block.output).second) continue;
      bytes += block.tensors[tensor].elements() * size_of(block.tensors[tensor].dtype);
    }
    sum.kept += Bytes{bytes}.mib();
    for (const Op& op : block.ops)
      if (op.kind == OpKind::kGeglu && block.state != BlockState::kF)
        sum.gelu_outputs += Bytes{block.tensors[op.output].elements() * 4}.mib();
  }
  return sum;
}

TEST(TrainingGraph, SavedBytesOfOneSampleAt512) {
  const BlockGraph graph = real();
  const SavedMib control = saved_mib(graph, "controlnet");
  EXPECT_NEAR(control.kept + control.gelu_outputs, 804, 1);
  const SavedMib decoder = saved_mib(graph, "unet");
  EXPECT_NEAR(decoder.kept + decoder.gelu_outputs, 767, 1);
  EXPECT_NEAR(control.kept, 732.6, 0.1);
  EXPECT_NEAR(decoder.kept, 662.2, 0.1);
}

TEST(TrainingGraph, SizeThatIsNoMultipleOf64IsRefused) {
  try {
    build_training_graph(tiny_model(), 128, 200, {});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("size 128 x 200: width and height must be multiples of 64"));
  }
  EXPECT_THROW(build_training_graph(tiny_model(), 0, 64, {}), ConfigError);
}

TEST(TrainingGraph, ModelThatDoesNotFitTogetherIsRefusedByName) {
  const auto message_of = [](const ModelConfig& model) -> std::string {
    try {
      build_training_graph(model, 128, 192, {});
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  ModelConfig model = tiny_model();
  model.unet.num_heads = 5;
  EXPECT_THAT(message_of(model), HasSubstr("unet.down_blocks.0.attentions.0: 64 channels are not "
                                           "divisible into 5 heads"));
  model = tiny_model();
  model.unet.down_attention = {true};
  EXPECT_THAT(message_of(model), HasSubstr("1 levels in down_attention, 4 in block_out_channels"));
  model = tiny_model();
  model.controlnet.conditioning_embedding_out_channels = {16, 32};
  EXPECT_THAT(message_of(model), HasSubstr("conditioning_embedding_out_channels has 2 entries"));
  model = tiny_model();
  model.unet.norm_num_groups = 48;
  EXPECT_THAT(message_of(model), HasSubstr("64 channels are not divisible into 48 norm groups"));
}

TEST(TrainingGraph, UnknownPrecisionAndTrainableChoiceAreRefused) {
  EXPECT_THROW(build_training_graph(tiny_model(), 64, 64, {}, "fp64"), ConfigError);
  EXPECT_THROW(build_training_graph(tiny_model(), 64, 64, {.what = "vae"}), ConfigError);
}

TEST(TrainingGraph, WidthAndHeightAreNotSwapped) {
  const BlockGraph graph = build_training_graph(tiny_model(), 128, 192, {});
  EXPECT_THAT(graph.values[graph.output].shape, ElementsAre(4, 24, 16));
  EXPECT_THAT(graph.values[block_of(graph, "unet.mid_block.resnets.0").output].shape,
              ElementsAre(128, 3, 2));
}

// The ControlNet time embedding is read along all of ControlNet: a stage order that follows the
// graph is fine.
TEST(TrainingGraph, SplitByPositionIsAValidPlacementForEachTrainableChoice) {
  for (const TrainableConfig& trainable :
       {TrainableConfig{}, TrainableConfig{.sd_locked = false},
        TrainableConfig{.only_mid_control = true}, TrainableConfig{.what = "unet"}}) {
    const BlockGraph graph = build_training_graph(tiny_model(), 128, 192, trainable);
    const size_t blocks = graph.blocks.size();
    Placement placement{.rank_of_stage = {0, 1, 2, 3}};
    placement.recompute.assign(blocks, false);
    for (size_t b = 0; b < blocks; ++b)
      placement.stage_of_block.push_back(static_cast<int>(4 * b / blocks));
    EXPECT_THAT(placement_faults(graph, placement), ElementsAre());
  }
}

TEST(TrainingGraph, ZeroConvolutionBehindTheStageOfTheNextBlockIsRefused) {
  const BlockGraph graph = build_training_graph(tiny_model(), 128, 192, {});
  Placement placement{.rank_of_stage = {0, 1}};
  const int cut = graph.find_block("unet.sum.0");
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b)
    placement.stage_of_block.push_back(b < cut ? 0 : 1);
  placement.recompute.assign(graph.blocks.size(), false);
  placement.stage_of_block[graph.find_block("controlnet.controlnet_down_blocks.4")] = 1;
  EXPECT_THAT(placement_faults(graph, placement),
              ElementsAre(::testing::AllOf(
                  HasSubstr("the gradient of controlnet.down_blocks.1.attentions.0"),
                  HasSubstr("controlnet.down_blocks.1.resnets.1 (stage 0)"),
                  HasSubstr("controlnet.controlnet_down_blocks.4 (stage 1)"))));
}

}  // namespace
}  // namespace stagecraft
