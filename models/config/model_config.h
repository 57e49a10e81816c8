// The model file (`configs/models/*.yaml`): the architecture of a latent diffusion model in
// numbers.
//
// Names follow the fields of diffusers' and transformers' config.json. Plain values, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecraft {

struct UNetConfig {
  int64_t in_channels = 4, out_channels = 4;
  std::vector<int64_t> block_out_channels = {320, 640, 1280, 1280};
  std::vector<bool> down_attention = {true, true, true,
                                      false};  // attention in down level i; up levels mirror it
  int64_t layers_per_block = 2;
  int64_t num_heads = 8;  // SD 1.5 configs call it attention_head_dim
  int64_t cross_attention_dim = 768;
  int64_t norm_num_groups = 32;
  bool operator==(const UNetConfig&) const = default;
};

struct ControlNetConfig {  // the rest is the UNet's
  int64_t conditioning_channels = 3;
  std::vector<int64_t> conditioning_embedding_out_channels = {16, 32, 96, 256};
  bool operator==(const ControlNetConfig&) const = default;
};

struct VaeConfig {
  int64_t in_channels = 3, latent_channels = 4;
  std::vector<int64_t> block_out_channels = {128, 256, 512, 512};
  int64_t layers_per_block = 2;
  int64_t norm_num_groups = 32;
  double scaling_factor = 0.18215;
  bool operator==(const VaeConfig&) const = default;
};

struct TextEncoderConfig {  // CLIP text
  int64_t vocab_size = 49408, max_length = 77;
  int64_t hidden_size = 768, intermediate_size = 3072, layers = 12, heads = 12;
  bool operator==(const TextEncoderConfig&) const = default;
};

struct NoiseConfig {  // ldm "linear": linspace of square roots of beta, squared
  int64_t timesteps = 1000;
  double linear_start = 0.00085, linear_end = 0.0120;
  bool operator==(const NoiseConfig&) const = default;
};

struct ModelConfig {
  std::string name;
  UNetConfig unet;
  ControlNetConfig controlnet;
  VaeConfig vae;
  TextEncoderConfig text_encoder;
  NoiseConfig noise;
  bool operator==(const ModelConfig&) const = default;
};

// Reads strictly; throws ConfigError with all faults of the file, `file:line:column` each.
ModelConfig read_model_config(const std::string& path);

// Cumulative product of (1 - beta), float64, `timesteps` values. [0] = 0.99915, [999] = 0.0046601
// for SD 1.5.
std::vector<double> alphas_cumprod(const NoiseConfig& noise);

}  // namespace stagecraft
