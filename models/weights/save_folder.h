// Writes a trained ControlNet or UNet as a folder that diffusers' from_pretrained loads:
// config.json and diffusion_pytorch_model.safetensors. Tensor by tensor, so that nobody has to hold
// the whole model.
//
// One thread at a time. Files appear under their names only when everything is written (`finish`).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/safetensors.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// Text of config.json as diffusers 0.42 writes it. `part`: "controlnet" or "unet"; InternalError
// for others.
std::string diffusers_config(const ModelConfig& model, const std::string& part);

struct SaveFolderOptions {
  std::string folder;         // made when it is not there; ".../controlnet"
  std::string part;           // "controlnet" or "unet"
  DType dtype = DType::kF32;  // or kF16: the file is then named *.fp16.safetensors (variant="fp16")
};

class FolderWriter {
 public:
  // `params`: of the part, all of them, named as in the graph ("controlnet.conv_in.weight"); their
  // order does not matter. Throws InputError(kIo).
  FolderWriter(const SaveFolderOptions& options, const ModelConfig& model,
               const std::vector<Param>& params);
  // Each parameter once, in any order. Blocks on the disk. Throws InputError: kIo, or kNonFinite
  // for NaN and infinity and for what fp16 cannot hold.
  void write(const Param& param, std::span<const float> values);
  // Flushes and renames. Throws InputError(kIo); InternalError when a parameter is missing.
  void finish();

 private:
  SaveFolderOptions options_;
  std::string config_;
  SafetensorsWriter writer_;
  std::vector<uint16_t> half_;
};

}  // namespace stagecraft
