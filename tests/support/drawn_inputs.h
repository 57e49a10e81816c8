// The inputs of a batch as `train` (training_world.h) draws them, for what does not use the
// executor.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tests/support/training_world.h"
#include "tests/support/whole_graph.h"

namespace stagecraft {

// By name without "input.", and "noise"; [N, ...]. Every sample is drawn alone, so that nothing can
// depend on the micro-batch it is in.
inline TensorMap drawn_inputs(const ModelConfig& model, const BlockGraph& graph,
                              std::span<const Draw> draws) {
  RandomSamples samples = training_samples(model, graph);
  const std::vector<double> alphas = alphas_cumprod(model.noise);
  std::map<std::string, std::vector<at::Tensor>> rows;
  for (const Draw& one : draws) {
    const std::span<const Draw> draw(&one, 1);
    const at::Tensor latents = samples.latents(draw);
    const at::Tensor timesteps = draw_timesteps(kTrainingSeed, draw, model.noise.timesteps);
    const at::Tensor noise = draw_noise(kTrainingSeed, draw, latents.sizes().slice(1));
    rows["noise"].push_back(noise);
    rows["timesteps"].push_back(timesteps);
    rows["noisy_latents"].push_back(add_noise(latents, noise, timesteps, alphas));
    rows["context"].push_back(samples.context(draw));
    rows["hint"].push_back(samples.hint(draw));
  }
  TensorMap inputs;
  for (const auto& [name, tensors] : rows) inputs[name] = at::cat(tensors);
  return inputs;
}

}  // namespace stagecraft
