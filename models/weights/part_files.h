// The weight files of one part of a diffusers folder: one file, or shards with their index.
//
// Owns open files. One thread at a time. Internal to models/weights.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "models/weights/safetensors.h"

namespace stagecraft {

class PartFiles {
 public:
  // `folder` is the part's: ".../unet". `base` is the files' name: "diffusion_pytorch_model" or
  // "model". Throws InputError: kIo when there is nothing, kPlanMismatch when there are only files
  // that are never read, kNoCheckpoint when a file is damaged or shards and index differ.
  PartFiles(const std::string& folder, const std::string& base);

  const std::map<std::string, TensorInfo>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& unreadable() const { return unreadable_; }
  // Converts to fp32. Throws InputError as the reader does, and kPlanMismatch for integers.
  void read(const std::string& name, std::span<float> out) const;
  // The file that holds `name`, for messages.
  const std::string& path_of(const std::string& name) const;
  std::string identity() const;

 private:
  void open(const std::string& path);
  void open_shards(const std::string& folder, const std::string& index);

  std::vector<SafetensorsReader> readers_;
  std::map<std::string, TensorInfo> tensors_;
  std::map<std::string, std::string> unreadable_;
  std::map<std::string, size_t> reader_of_;
};

}  // namespace stagecraft
