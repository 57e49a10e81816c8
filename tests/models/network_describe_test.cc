#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "models/network/build.h"
#include "models/network/describe.h"

namespace stagecraft {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<BlockGraph> all_parts(const TrainableConfig& trainable = {}) {
  const ModelConfig model;
  return {build_training_graph(model, 512, 512, trainable), build_vae_encoder(model, 512, 512),
          build_vae_decoder(model, 512, 512), build_text_encoder(model)};
}

TEST(DescribeGraph, JsonTotalsOfAllFourParts) {
  const auto parts = nlohmann::json::parse(describe_json(all_parts())).at("parts");
  EXPECT_EQ(parts.at("unet").at("parameters"), 859'520'964);
  EXPECT_EQ(parts.at("controlnet").at("parameters"), 361'279'120);
  EXPECT_EQ(parts.at("vae").at("parameters"), 83'653'863);
  EXPECT_EQ(parts.at("text_encoder").at("parameters"), 123'060'480);
  EXPECT_EQ(parts.at("unet").at("sections").at("middle").at("parameters"), 97'038'080);
  EXPECT_EQ(parts.at("unet").at("trainable_parameters"), 0);
  EXPECT_EQ(parts.at("controlnet").at("trainable_parameters"), 361'279'120);
  EXPECT_EQ(parts.at("controlnet").at("tensors"), 340);
}

TEST(DescribeGraph, JsonNamesEveryBlockWithItsFigures) {
  const std::vector<BlockGraph> graphs = all_parts();
  const auto json = nlohmann::json::parse(describe_json(graphs));
  size_t blocks = 0;
  for (const BlockGraph& graph : graphs) blocks += graph.blocks.size();
  ASSERT_EQ(json.at("blocks").size(), blocks);
  const auto& conv_in = json.at("blocks").at(1);
  EXPECT_EQ(conv_in.at("name"), "unet.conv_in");
  EXPECT_EQ(conv_in.at("kind"), "conv_in");
  EXPECT_EQ(conv_in.at("parameters"), 11'840);
  EXPECT_EQ(conv_in.at("macs"), 320 * 64 * 64 * 4 * 9);
  EXPECT_EQ(conv_in.at("output_bytes"), 320 * 64 * 64 * 4);
  EXPECT_EQ(conv_in.at("state"), "F");
}

TEST(DescribeGraph, BlocksThatNeverRunAreMarked) {
  const BlockGraph graph = all_parts({.only_mid_control = true})[0];
  EXPECT_THAT(describe_text(graph),
              ContainsRegex("controlnet_down_blocks\\.0 +zero_conv +not run"));
  const auto json = nlohmann::json::parse(describe_json(graph));
  int idle = 0;
  for (const auto& block : json.at("blocks")) idle += block.at("runs") ? 0 : 1;
  EXPECT_EQ(idle, 12);
}

TEST(DescribeGraph, TextShowsStateParametersAndTotals) {
  const std::string text = describe_text(all_parts());
  EXPECT_THAT(text, ContainsRegex("unet\\.up_blocks\\.0\\.resnets\\.0 +resnet +F\\+I +49164800"));
  EXPECT_THAT(text, ContainsRegex("\n  output +510795840"));
  EXPECT_THAT(text, ContainsRegex("\nvae +83653863"));
  EXPECT_THAT(text, Not(HasSubstr("not run")));
}

}  // namespace
}  // namespace stagecraft
