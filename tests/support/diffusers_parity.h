// The training graph of the tiny model against diffusers, live.
#pragma once

#include <string>

#include "tests/support/reference.h"
#include "tests/support/trainable_choices.h"
#include "tests/support/whole_graph.h"

namespace stagecraft {

inline constexpr double kGradientBound = 1e-5;  // L2 of each parameter's gradient, relative

// Prediction and gradients of one backward call. Returns the largest distance of a gradient.
inline double expect_parity_with_diffusers(const TrainableChoice& choice) {
  const BlockGraph graph = training_graph(tiny_model(), kTinyWidth, kTinyHeight, choice);
  BlockTensors params = parameters(graph);
  require_gradients(graph, params);
  const TensorMap inputs = reference("inputs");
  const WholeGraph ours(graph, params, inputs);
  const std::string name = choice.name;
  EXPECT_LE(distance(ours.prediction(), reference("outputs").at("prediction." + name)),
            kOutputTolerance);
  const at::Tensor loss = at::mse_loss(ours.prediction(), inputs.at("noise"));
  return expect_close_gradients(gradients_of(loss, graph, params), reference("gradients_" + name),
                                kGradientBound);
}

}  // namespace stagecraft
