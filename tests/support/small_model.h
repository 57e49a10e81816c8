// The SD 1.5 topology in its smallest useful size, for tests that train it many times.
#pragma once

#include "models/config/model_config.h"

namespace stagecraft {

inline ModelConfig small_model() {
  ModelConfig model;
  model.name = "small";
  model.unet.block_out_channels = {32, 32, 64, 64};
  model.unet.num_heads = 2;
  model.unet.cross_attention_dim = 32;
  model.unet.norm_num_groups = 8;
  model.controlnet.conditioning_embedding_out_channels = {8, 8, 16, 16};
  model.text_encoder.hidden_size = 32;
  return model;
}

}  // namespace stagecraft
