// The two frozen networks that are needed once for each picture and caption, behind an interface
// that the cache can be tested without.
//
// One thread at a time. Weights are loaded at the first call of each kind and held until `release`;
// the cache encodes pictures and captions one after the other, so that VAE and text encoder are
// never in memory together.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.h"
#include "models/text/tokenizer.h"
#include "models/weights/weight_source.h"

namespace stagecraft {

class Encoder {
 public:
  virtual ~Encoder() = default;
  // What, besides the input, decides the result: networks and weights. Hex SHA-256.
  virtual std::string image_identity() const = 0;
  virtual std::string text_identity() const = 0;
  // Values of one result: [channels, H/8, W/8] of the mean; [length, context].
  virtual std::vector<int64_t> latent_shape() const = 0;
  virtual std::vector<int64_t> embedding_shape() const = 0;
  // Ids of a caption. Throws InputError(kDataInvalid).
  virtual std::vector<int64_t> tokenize(std::string_view caption) const = 0;
  // [1, 3, H, W] in [-1, 1] -> [1, 2 * channels, H/8, W/8]: mean, then log-variance as the network
  // gives it.
  virtual at::Tensor encode_image(const at::Tensor& image_nchw) = 0;
  // -> [1, length, context].
  virtual at::Tensor encode_text(const std::vector<int64_t>& ids) = 0;
  // Frees the weights.
  virtual void release() = 0;
};

// The model's VAE encoder and CLIP text encoder. All three must outlive the encoder.
struct EncoderParts {
  const ModelConfig& model;
  const WeightSource& weights;
  const ClipTokenizer& tokenizer;
};
// Throws InputError(kPlanMismatch) when the tokenizer has more tokens than the text encoder knows.
std::unique_ptr<Encoder> make_encoder(const EncoderParts& parts, int64_t width, int64_t height);

}  // namespace stagecraft
