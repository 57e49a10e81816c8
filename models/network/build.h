// Builders: a model file becomes block graphs, pure data.
//
// One description serves everything: parameter counts, costs, weight names, and execution
// (models/torch interprets the same operations). Pure functions, any thread.
#pragma once

#include <string>

#include "models/config/model_config.h"
#include "partitioner/graph/graph.h"
#include "partitioner/plan/train_config.h"

namespace stagecraft {

// Local inputs of the training graph, by value name.
inline constexpr const char* kInputNoisyLatents = "input.noisy_latents";  // [4, H/8, W/8]
inline constexpr const char* kInputTimesteps = "input.timesteps";         // [] int64
inline constexpr const char* kInputContext = "input.context";             // [77, context_dim]
inline constexpr const char* kInputHint = "input.hint";                   // [3, H, W], in [0, 1]

// UNet and, unless the whole UNet is trained, ControlNet; states derived from `trainable`.
// `precision` gives the dtype of activations ("fp32", "fp16", "bf16"). Block names:
// "unet.<diffusers module>", "controlnet.<diffusers module>", sums "unet.sum.<i>" (skip i +
// residual i), "unet.sum.mid", "controlnet.sum.hint". Positions: unet.time_embedding, encoder,
// middle; ControlNet with zero convolution i directly behind its block; sums 0..11 and mid;
// decoder; unet.conv_out (norm, SiLU, convolution). Throws ConfigError when width or height is not
// a multiple of 64.
BlockGraph build_training_graph(const ModelConfig& model, int64_t width, int64_t height,
                                const TrainableConfig& trainable,
                                const std::string& precision = "fp32");

// Chains used once per picture or caption, frozen. Values "input.image" [3,H,W] in [-1,1] ->
// moments [8,H/8,W/8] (quant_conv included; mean, then log-variance, not clamped).
BlockGraph build_vae_encoder(const ModelConfig& model, int64_t width, int64_t height);
// "input.latents" [4,H/8,W/8] (already divided by the scaling factor) -> image [3,H,W].
BlockGraph build_vae_decoder(const ModelConfig& model, int64_t width, int64_t height);
// "input.ids" [77] int64 -> last hidden state after the final layer norm [77, hidden].
BlockGraph build_text_encoder(const ModelConfig& model);

}  // namespace stagecraft
