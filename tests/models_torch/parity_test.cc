// UNet and ControlNet against diffusers, live, on the tiny model with sharp random
// weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>
#include <vector>

#include "models/network/build.h"
#include "models/torch/mistakes.h"
#include "models/torch/runner.h"
#include "tests/models_torch/reference.h"

namespace stagecraft {
namespace {

constexpr double kGradientTolerance = 5e-5;

// The training graph as one autograd graph: what single-device training in one piece computes.
struct WholeGraph {
  BlockGraph graph;
  std::vector<at::Tensor> values;
  std::vector<std::vector<at::Tensor>> params;

  explicit WholeGraph(const TrainableConfig& trainable)
      : graph(build_training_graph(tiny_model(), kTinyWidth, kTinyHeight, trainable)),
        values(graph.values.size()),
        params(parameters(graph)) {
    TensorMap inputs = reference("inputs");
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& name = graph.values[i].name;
      if (graph.values[i].producer < 0) values[i] = inputs.at(name.substr(name.find('.') + 1));
    }
    for (size_t i = 0; i < graph.blocks.size(); ++i) {
      const Block& block = graph.blocks[i];
      if (!block.reaches_loss) continue;
      for (at::Tensor& p : params[i]) p.set_requires_grad(block.trainable);
      std::vector<at::Tensor> arguments;
      for (const int value : block.inputs) arguments.push_back(values[value]);
      values[block.output] = run_block(block, arguments, params[i]);
    }
  }

  const at::Tensor& prediction() const { return values[graph.output]; }

  const at::Tensor& value(const std::string& block) const {
    return values.at(graph.blocks.at(graph.find_block(block)).output);
  }

  // Of every trainable parameter that the loss reaches.
  TensorMap gradients() const {
    std::vector<std::string> names;
    std::vector<at::Tensor> leaves;
    for (size_t i = 0; i < graph.blocks.size(); ++i) {
      const Block& block = graph.blocks[i];
      if (!block.trainable || !block.reaches_loss) continue;
      for (size_t p = 0; p < block.params.size(); ++p) {
        names.push_back(block.params[p].name);
        leaves.push_back(params[i][p]);
      }
    }
    const at::Tensor loss = at::mse_loss(prediction(), reference("inputs").at("noise"));
    const std::vector<at::Tensor> grads = torch::autograd::grad({loss}, leaves);
    TensorMap result;
    for (size_t i = 0; i < names.size(); ++i) result.emplace(names[i], grads[i]);
    return result;
  }
};

const std::map<std::string, TrainableConfig> kChoices = {
    {"controlnet", {}},
    {"unlocked", {.what = "controlnet", .sd_locked = false, .only_mid_control = false}},
    {"only_mid_control", {.what = "controlnet", .sd_locked = true, .only_mid_control = true}},
    {"unet", {.what = "unet", .sd_locked = true, .only_mid_control = false}},
};

class TrainingParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_P(TrainingParity, PredictionAndGradientsEqualDiffusers) {
  const WholeGraph ours(kChoices.at(GetParam()));
  EXPECT_LE(distance(ours.prediction(), reference("outputs").at("prediction." + GetParam())),
            kOutputTolerance);

  const TensorMap gradients = ours.gradients(), theirs = reference("gradients_" + GetParam());
  double worst = 0.0;
  for (const auto& [name, gradient] : gradients) {
    ASSERT_TRUE(theirs.contains(name)) << name << " has no gradient in diffusers";
    const double d = distance(gradient, theirs.at(name));
    EXPECT_LE(d, kGradientTolerance) << name;
    worst = std::max(worst, d);
  }
  for (const auto& [name, gradient] : theirs) {
    EXPECT_TRUE(gradients.contains(name)) << name << " has no gradient here";
  }
  RecordProperty("worst_gradient_distance", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Choices, TrainingParity,
                         ::testing::Values("controlnet", "unlocked", "only_mid_control", "unet"),
                         [](const auto& info) { return info.param; });

class Parity : public ::testing::Test {
 protected:
  void SetUp() override { at::set_num_threads(1); }

  static double prediction_distance() {
    const at::NoGradGuard no_grad;
    return distance(WholeGraph({}).prediction(), reference("outputs").at("prediction.controlnet"));
  }
};

TEST_F(Parity, ResidualsEqualDiffusers) {
  const at::NoGradGuard no_grad;
  const WholeGraph ours({});
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

TEST_F(Parity, TanhGeluIsNoticed) {
  const mistakes::ScopedMistake mistake(mistakes::Mistake::kTanhGelu);
  EXPECT_GT(prediction_distance(), 5 * kOutputTolerance);
}

TEST_F(Parity, WrongGroupNormEpsIsNoticed) {
  const mistakes::ScopedMistake mistake(mistakes::Mistake::kGroupNormEps);
  EXPECT_GT(prediction_distance(), 5 * kOutputTolerance);
}

}  // namespace
}  // namespace stagecraft
