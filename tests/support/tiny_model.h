// The real topology at a size for tests, equal to configs/models/sd15_controlnet_tiny.yaml; used at
// 128 x 192 pixels.
#pragma once

#include "models/config/model_config.h"

namespace stagecraft {

inline ModelConfig tiny_model() {
  ModelConfig model;
  model.name = "sd15_controlnet_tiny";
  model.unet.block_out_channels = {64, 128, 128, 128};
  model.unet.num_heads = 4;
  model.unet.cross_attention_dim = 96;
  model.vae.block_out_channels = {32, 64, 64, 64};
  model.text_encoder.hidden_size = 96;
  model.text_encoder.intermediate_size = 384;
  model.text_encoder.layers = 2;
  model.text_encoder.heads = 4;
  return model;
}

inline constexpr int64_t kTinyWidth = 128, kTinyHeight = 192;

}  // namespace stagecraft
