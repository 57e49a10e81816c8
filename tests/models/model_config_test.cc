#include "models/config/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/known_keys.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kModels = STAGECRAFT_SOURCE_DIR "/configs/models/";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal(const std::string& text) {
  TempFolder folder;
  const auto error = caught([&] { read_model_config(folder.write("m.yaml", text)); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  return error.message;
}

std::string shipped() { return read_file(kModels + "sd15_controlnet.yaml", 1 << 20); }

TEST(ModelConfig, ShippedSd15EqualsTheDefaults) {
  ModelConfig expected;
  expected.name = "sd15_controlnet";
  EXPECT_EQ(read_model_config(kModels + "sd15_controlnet.yaml"), expected);
}

TEST(ModelConfig, ShippedTinyModelReads) {
  const ModelConfig tiny = read_model_config(kModels + "sd15_controlnet_tiny.yaml");
  EXPECT_THAT(tiny.unet.block_out_channels, ElementsAre(64, 128, 128, 128));
  EXPECT_THAT(tiny.vae.block_out_channels, ElementsAre(32, 64, 64, 64));
  EXPECT_EQ(tiny.text_encoder.layers, 2);
}

TEST(ModelConfig, NoiseScheduleMatchesLdm) {
  const auto a = alphas_cumprod(NoiseConfig{});
  ASSERT_EQ(a.size(), 1000u);
  // ldm's make_beta_schedule("linear"), evaluated in float64.
  EXPECT_NEAR(a[0], 0.99915, 5e-6);
  EXPECT_NEAR(a[250], 0.673793, 5e-7);
  EXPECT_NEAR(a[500], 0.276333, 5e-7);
  EXPECT_NEAR(a[999], 0.0046601, 5e-8);
}

TEST(ModelConfig, EveryKeyIsDocumented) {
  const std::string message = refusal(
      "zzz: 1\nname: x\nunet: {zzz: 1}\ncontrolnet: {zzz: 1}\nvae: {zzz: 1}\ntext_encoder: {zzz: "
      "1}\n"
      "noise: {zzz: 1}\n");
  const std::string readme = read_file(kModels + "README.md", 1 << 20);
  const auto keys = known_keys(message);
  EXPECT_GE(keys.size(), 30u);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(ModelConfig, LevelsAndAttentionMustAgree) {
  EXPECT_THAT(refusal(replaced(shipped(), "[true, true, true, false]", "[true, true, false]")),
              HasSubstr("unet.down_attention has 3 entries, block_out_channels has 4"));
}

TEST(ModelConfig, ChannelsMustDivideByGroups) {
  EXPECT_THAT(refusal(replaced(shipped(), "[320, 640", "[328, 640")),
              HasSubstr("unet.block_out_channels: 328 is not a multiple of norm_num_groups 32"));
}

TEST(ModelConfig, ContextMustMatchTheTextEncoder) {
  EXPECT_THAT(refusal(replaced(shipped(), "cross_attention_dim: 768", "cross_attention_dim: 1024")),
              HasSubstr("text_encoder.hidden_size 768 differs from unet.cross_attention_dim 1024"));
}

TEST(ModelConfig, AllFaultsAreReportedAtOnce) {
  std::string text = replaced(shipped(), "layers_per_block: 2", "layers_per_block: 0");
  text = replaced(text, "timesteps: 1000", "timesteps: 1000.0");
  text = replaced(text, "layers: 12", "layer: 12");
  const std::string message = refusal(text);
  EXPECT_THAT(message, HasSubstr("unet.layers_per_block is out of range: `0`, allowed is 1 to 16"));
  EXPECT_THAT(message, HasSubstr("noise.timesteps must be a whole number"));
  EXPECT_THAT(message, HasSubstr("unknown key `text_encoder.layer`, did you mean `layers`?"));
  EXPECT_THAT(message, HasSubstr("key `text_encoder.layers` is missing"));
}

}  // namespace
}  // namespace stagecraft
