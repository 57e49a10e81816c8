// configs/models/sd15_controlnet_tiny.yaml: the real topology at a size for tests, used at
// 128 x 192 pixels.
#pragma once

#include <string>

#include "models/config/model_config.h"

namespace stagecraft {

inline constexpr int64_t kTinyWidth = 128, kTinyHeight = 192;

inline const std::string kTinyModelFile =
    STAGECRAFT_SOURCE_DIR "/configs/models/sd15_controlnet_tiny.yaml";

inline ModelConfig tiny_model() { return read_model_config(kTinyModelFile); }

}  // namespace stagecraft
