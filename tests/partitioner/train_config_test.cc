#include "partitioner/plan/train_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/known_keys.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

const std::string kTrain = STAGECRAFT_SOURCE_DIR "/configs/train/";

std::string config_refusal(const std::string& text) {
  TempFolder folder;
  const auto error = caught([&] { read_train_config(folder.write("t.yaml", text)); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  return error.message;
}

TEST(TrainConfig, ShippedSd15FileGivesTheDefaultsInHalfPrecision) {
  TrainConfig expected;
  expected.model = STAGECRAFT_SOURCE_DIR "/configs/models/sd15_controlnet.yaml";
  expected.precision = "fp16";
  EXPECT_EQ(read_train_config(kTrain + "sd15_controlnet.yaml"), expected);
}

TEST(TrainConfig, ShippedDemoFileIsValid) {
  EXPECT_EQ(validate(read_train_config(kTrain + "tiny_demo.yaml")), "");
}

TEST(TrainConfig, ModelPathIsRelativeToTheFile) {
  TempFolder folder;
  const auto config = read_train_config(folder.write("a/t.yaml", "model: ../m.yaml\n"));
  EXPECT_EQ(config.model, folder.file("m.yaml"));
}

TEST(TrainConfig, EveryKeyIsDocumented) {
  const auto keys =
      known_keys(config_refusal("model: m\nzzz: 1\ntrainable: {zzz: 1}\noptimizer: {zzz: 1}\n"));
  EXPECT_GE(keys.size(), 21u);
  const std::string readme = read_file(kTrain + "README.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(readme, HasSubstr("`" + key + "`"));
}

TEST(TrainConfig, FaultsAreFoundAllAtOnce) {
  const std::string message = config_refusal(
      "model: m\nwidth: 500\nprecision: fp8\nbatch: 2\nmicro_batch: 4\nsteps: 0\nseed: -1\n");
  EXPECT_THAT(message, HasSubstr("t.yaml:2:1: width must be a multiple of 64, got 500"));
  EXPECT_THAT(message, HasSubstr("t.yaml:3:12: precision must be one of fp32, fp16, bf16"));
  EXPECT_THAT(message, HasSubstr("t.yaml:5:1: micro_batch 4 is larger than batch 2"));
  EXPECT_THAT(message, HasSubstr("t.yaml:6:8: steps is out of range"));
  EXPECT_THAT(message, HasSubstr("t.yaml:7:7: seed is out of range"));
}

TEST(TrainConfig, WholeUnetLeavesNoControlNetOptions) {
  EXPECT_THAT(config_refusal("model: m\ntrainable: {what: unet, only_mid_control: true}\n"),
              HasSubstr("t.yaml:2:1: trainable.what: unet trains the whole UNet"));
}

TEST(TrainConfig, ValidateSeesWhatFlagsMayBreak) {
  TrainConfig config;
  config.model = "m";
  EXPECT_EQ(validate(config), "");
  config.width = 100;
  EXPECT_EQ(validate(config), "width must be a multiple of 64, got 100");
  config.width = 512;
  config.micro_batch = 9;
  EXPECT_EQ(validate(config), "micro_batch 9 is larger than batch 4");
  config.micro_batch = 0;
  EXPECT_EQ(validate(config), "micro_batch is out of range: 0, allowed is 1 to 65536");
}

TEST(TrainConfig, CanonicalTextTellsConfigurationsApartButNotFolders) {
  TrainConfig a;
  TrainConfig b = a;
  b.model = "elsewhere/m.yaml";
  EXPECT_EQ(canonical_text(a), canonical_text(b));
  b.optimizer.learning_rate = 2e-5;
  EXPECT_NE(canonical_text(a), canonical_text(b));
}

}  // namespace
}  // namespace stagecraft
