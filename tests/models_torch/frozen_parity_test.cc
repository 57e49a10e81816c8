// VAE and text encoder against diffusers and transformers, live, on the tiny model with sharp
// random weights.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <vector>

#include "models/network/build.h"
#include "models/torch/runner.h"
#include "tests/support/reference.h"

namespace stagecraft {
namespace {

TEST(FrozenParity, VaePosteriorEqualsDiffusers) {
  at::set_num_threads(1);
  const BlockGraph graph = build_vae_encoder(tiny_model(), kTinyWidth, kTinyHeight);
  const at::Tensor moments = run_chain(graph, reference("inputs").at("image"), parameters(graph));
  const std::vector<at::Tensor> halves = moments.chunk(2, 1);
  const TensorMap theirs = reference("outputs");
  EXPECT_LE(distance(halves[0], theirs.at("vae.mean")), kOutputTolerance);
  const at::Tensor deviation = at::exp(0.5 * at::clamp(halves[1], -30.0, 20.0));
  EXPECT_LE(distance(deviation, theirs.at("vae.std")), kOutputTolerance);
}

TEST(FrozenParity, VaeDecodeEqualsDiffusers) {
  at::set_num_threads(1);
  const BlockGraph graph = build_vae_decoder(tiny_model(), kTinyWidth, kTinyHeight);
  const at::Tensor image = run_chain(graph, reference("inputs").at("latents"), parameters(graph));
  EXPECT_LE(distance(image, reference("outputs").at("vae.decoded")), kOutputTolerance);
}

TEST(FrozenParity, TextEncoderEqualsTransformers) {
  at::set_num_threads(1);
  const BlockGraph graph = build_text_encoder(tiny_model());
  const at::Tensor hidden = run_chain(graph, reference("inputs").at("ids"), parameters(graph));
  EXPECT_LE(distance(hidden, reference("outputs").at("text_encoder.last_hidden_state")),
            kOutputTolerance);
}

}  // namespace
}  // namespace stagecraft
