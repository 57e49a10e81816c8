// Names and sizes inside the cache folder, shared by the writer and the readers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/data/cache_store.h"

namespace stagecraft {

inline constexpr int64_t kPixelsPerLatent = 8;  // in each direction

inline constexpr const char* kLatentsFolder = "latents";
inline constexpr const char* kCaptionsFolder = "captions";
inline constexpr const char* kManifestsFolder = "manifests";

inline std::vector<NamedShape> latent_tensors(const std::vector<int64_t>& shape) {
  return {{"mean", shape}, {"std", shape}};
}
inline std::vector<NamedShape> caption_tensors(const std::vector<int64_t>& shape) {
  return {{"embedding", shape}};
}

}  // namespace stagecraft
