// Where weights come from: a diffusers folder, or seeded random numbers of the real shapes.
//
// Knows names and bytes, not tensors of any framework. One thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Fills `out` (fp32, param.elements() values), converting from fp16 or bf16. Throws InputError;
  // InternalError when `out` has another size.
  virtual void read(const Param& param, std::span<float> out) const = 0;
  // SHA-256 over what identifies the weights of a part cheaply (headers and a sample of
  // each tensor, or the seed), for cache keys. Does not change when the folder is moved.
  virtual std::string identity(const std::string& part) const = 0;
};

// Opens `folder` with unet/ vae/ text_encoder/ and optionally controlnet/ (*.safetensors,
// *.fp16.safetensors, or shards with their index; older names too, see docs/weights.md). A
// ControlNet that is not there is initialised from the UNet as diffusers and cldm do (copies; hint
// encoder random by seed; its conv_out and the zero convolutions zero). Only parts that `expected`
// names are opened, and the UNet for a new ControlNet.
//
// `expected`: every parameter of all parts in use, not one rank's share (of a VAE the encoder alone
// is enough). Missing, unexpected and misshapen tensors are listed by
// name (first ten of each) in one InputError(kPlanMismatch). Files with the wrong format:
// InputError(kNoCheckpoint); a .ckpt/.bin only: InputError(kPlanMismatch) with the way out. Links
// are followed (download caches are full of them), pipes refused. `read` throws
// InputError(kNoCheckpoint) for NaN or infinity unless `allow_nonfinite`.
std::unique_ptr<WeightSource> open_diffusers_folder(const std::string& folder,
                                                    const std::vector<Param>& expected,
                                                    uint64_t seed, bool allow_nonfinite = false);

// Pure function of (seed, name, element index), nothing zero: uniform, scaled by fan-in for
// matrices and convolutions, norms around one, biases small; zero convolutions small.
// docs/weights.md has the rule.
std::unique_ptr<WeightSource> random_weights(uint64_t seed);

}  // namespace stagecraft
