// VAE and text encoder: counts of the published networks, shapes, and what sets them apart from the
// UNet's layers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "models/network/build.h"
#include "partitioner/base/error.h"
#include "tests/support/tiny_model.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;

std::map<std::string, int64_t> parameters(const BlockGraph& graph) {
  std::map<std::string, int64_t> sums;
  for (const Block& block : graph.blocks) sums[block.section] += block.parameters();
  return sums;
}

const Block& named_block(const BlockGraph& graph, const std::string& name) {
  return graph.blocks.at(graph.find_block(name));
}

void expect_frozen_chain(const BlockGraph& graph) {
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    EXPECT_FALSE(block.trainable) << block.name;
    EXPECT_EQ(block.state, BlockState::kF) << block.name;
    EXPECT_TRUE(block.reaches_loss) << block.name;
    ASSERT_EQ(block.inputs.size(), 1u) << block.name;
    EXPECT_EQ(graph.values[block.inputs[0]].producer, static_cast<int>(b) - 1) << block.name;
  }
}

TEST(VaeGraph, ParametersOfEachSection) {
  const ModelConfig model;
  const auto encoder = parameters(build_vae_encoder(model, 512, 512));
  EXPECT_EQ(encoder.at("encoder"), 34'163'592);
  EXPECT_EQ(encoder.at("quant"), 72);
  const auto decoder = parameters(build_vae_decoder(model, 512, 512));
  EXPECT_EQ(decoder.at("decoder"), 49'490'179);
  EXPECT_EQ(decoder.at("post_quant"), 20);
  EXPECT_EQ(34'163'592 + 72 + 49'490'179 + 20, 83'653'863);
}

TEST(VaeGraph, EncoderAndDecoderAreFrozenChains) {
  expect_frozen_chain(build_vae_encoder(tiny_model(), kTinyWidth, kTinyHeight));
  expect_frozen_chain(build_vae_decoder(tiny_model(), kTinyWidth, kTinyHeight));
}

TEST(VaeGraph, EncoderMakesMomentsAndDecoderAnImage) {
  const BlockGraph encoder = build_vae_encoder(tiny_model(), 128, 192);
  EXPECT_THAT(encoder.values[encoder.find_block("vae.encoder.conv_in")].shape,
              ElementsAre(3, 192, 128));
  EXPECT_THAT(encoder.values[encoder.output].shape, ElementsAre(8, 24, 16));
  const BlockGraph decoder = build_vae_decoder(tiny_model(), 128, 192);
  EXPECT_THAT(decoder.values[decoder.output].shape, ElementsAre(3, 192, 128));
  EXPECT_EQ(decoder.values[0].name, "input.latents");
  EXPECT_THAT(decoder.values[0].shape, ElementsAre(4, 24, 16));
}

TEST(VaeGraph, NormsUseOneMillionth) {
  for (const BlockGraph& graph :
       {build_vae_encoder(tiny_model(), 64, 64), build_vae_decoder(tiny_model(), 64, 64)}) {
    for (const Block& block : graph.blocks) {
      for (const Op& op : block.ops) {
        EXPECT_TRUE(op.kind != OpKind::kGroupNorm || op.eps == 1e-6) << block.name;
      }
    }
  }
}

TEST(VaeGraph, DownsamplingPadsRightAndBelowOnly) {
  const BlockGraph graph = build_vae_encoder(tiny_model(), 64, 64);
  const Block& block = named_block(graph, "vae.encoder.down_blocks.0.downsamplers.0");
  ASSERT_EQ(block.ops.size(), 2u);
  EXPECT_EQ(block.ops[0].kind, OpKind::kPadRightBottom);
  EXPECT_THAT(block.ops[1].ints, ElementsAre(2, 0));
}

TEST(VaeGraph, AttentionHasOneHeadAndBiases) {
  const BlockGraph graph = build_vae_decoder(tiny_model(), 64, 64);
  const Block& block = named_block(graph, "vae.decoder.mid_block.attentions.0");
  EXPECT_EQ(block.params.size(), 10u);
  for (const Op& op : block.ops) {
    if (op.kind == OpKind::kAttention) {
      EXPECT_THAT(op.ints, ElementsAre(1, 0));
    }
  }
}

TEST(VaeGraph, SizeThatIsNoMultipleOf8IsRefused) {
  EXPECT_THROW(build_vae_encoder(tiny_model(), 100, 64), ConfigError);
}

TEST(TextEncoderGraph, ParametersOfClipL) {
  const BlockGraph graph = build_text_encoder(ModelConfig{});
  int64_t sum = 0;
  for (const auto& [section, count] : parameters(graph)) sum += count;
  EXPECT_EQ(sum, 123'060'480);
  expect_frozen_chain(graph);
}

TEST(TextEncoderGraph, EveryLayerAttendsCausally) {
  const BlockGraph graph = build_text_encoder(tiny_model());
  int attentions = 0;
  for (const Block& block : graph.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::kAttention) continue;
      EXPECT_THAT(op.ints, ElementsAre(4, 1));
      ++attentions;
    }
  }
  EXPECT_EQ(attentions, 2);
}

TEST(TextEncoderGraph, IdsBecomeHiddenStates) {
  const BlockGraph graph = build_text_encoder(tiny_model());
  EXPECT_EQ(graph.values[0].name, "input.ids");
  EXPECT_EQ(graph.values[0].dtype, DType::kI64);
  EXPECT_THAT(graph.values[graph.output].shape, ElementsAre(77, 96));
}

}  // namespace
}  // namespace stagecraft
