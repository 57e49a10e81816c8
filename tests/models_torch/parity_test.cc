// UNet and ControlNet against diffusers, live, on the tiny model with sharp random weights. That a
// wrong activation or eps would be noticed: tests/pipeline/mistakes_test.cc.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/diffusers_parity.h"

namespace stagecraft {
namespace {

class TrainingParity : public ::testing::TestWithParam<TrainableChoice> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_P(TrainingParity, PredictionAndGradientsEqualDiffusers) {
  RecordProperty("worst_gradient_distance",
                 std::to_string(expect_parity_with_diffusers(GetParam())));
}

INSTANTIATE_TEST_SUITE_P(Choices, TrainingParity, ::testing::ValuesIn(kTrainableChoices),
                         [](const auto& info) { return info.param.name; });

TEST(Parity, ResidualsEqualDiffusers) {
  at::set_num_threads(1);
  const at::NoGradGuard no_grad;
  const BlockGraph graph =
      training_graph(tiny_model(), kTinyWidth, kTinyHeight, kTrainableChoices[0]);
  const WholeGraph ours(graph, parameters(graph), reference("inputs"));
  const TensorMap theirs = reference("outputs");
  for (int i = 0; i < 12; ++i) {
    const std::string index = std::to_string(i);
    EXPECT_LE(distance(ours.value("controlnet.controlnet_down_blocks." + index),
                       theirs.at("residual." + index)),
              kOutputTolerance)
        << "residual " << i;
  }
  EXPECT_LE(distance(ours.value("controlnet.controlnet_mid_block"), theirs.at("residual.12")),
            kOutputTolerance);
}

}  // namespace
}  // namespace stagecraft
