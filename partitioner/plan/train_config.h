// The training file `train.yaml`: what both programs need to know about the job. Flags override it.
//
// Plain values, any thread. Every key is documented in configs/train/README.md.
#pragma once

#include <cstdint>
#include <string>

namespace stagecraft {

struct OptimizerConfig {  // AdamW, Loshchilov & Hutter 2019; defaults as cldm and diffusers
  double learning_rate = 1e-5;
  double beta1 = 0.9, beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;
  int64_t warmup_steps = 0;    // linear from 0 to learning_rate
  double max_grad_norm = 0.0;  // global L2 norm; 0 leaves gradients as they are
  bool operator==(const OptimizerConfig&) const = default;
};

struct TrainableConfig {
  std::string what = "controlnet";  // "controlnet" or "unet" (the whole UNet, no ControlNet)
  bool sd_locked = true;            // false: the UNet decoder (up_blocks, out) trains too
  bool only_mid_control =
      false;  // only the middle residual is added; the 12 zero convolutions never run
  bool operator==(const TrainableConfig&) const = default;
};

struct TrainConfig {
  std::string model;                  // path of the model file
  int64_t width = 512, height = 512;  // pixels, multiples of 64
  std::string precision = "fp32";     // "fp32", "fp16", "bf16"
  TrainableConfig trainable;
  int64_t batch = 4, micro_batch = 1;
  int64_t steps = 1000;
  uint64_t seed = 42;
  double caption_dropout = 0.0;  // probability of the empty caption
  OptimizerConfig optimizer;
  bool operator==(const TrainConfig&) const = default;
};

// Reads strictly; throws ConfigError with all faults of the file, `file:line:column` each.
// A relative `model` path is relative to the file.
TrainConfig read_train_config(const std::string& path);
// Faults in values (ranges, multiples, combinations), without a position; used for flags as well.
std::string validate(const TrainConfig& config);  // empty when fine
std::string canonical_text(const TrainConfig& config);

}  // namespace stagecraft
