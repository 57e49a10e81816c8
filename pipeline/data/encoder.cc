#include "pipeline/data/encoder.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "models/network/build.h"
#include "models/torch/runner.h"
#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"

namespace stagecraft {
namespace {

using ChainWeights = std::vector<std::vector<at::Tensor>>;

ChainWeights load(const BlockGraph& graph, const WeightSource& weights) {
  ChainWeights loaded;
  for (const Block& block : graph.blocks) {
    std::vector<at::Tensor>& params = loaded.emplace_back();
    for (const Param& param : block.params) {
      at::Tensor values = at::empty(param.shape, at::kFloat);
      weights.read(param, {values.data_ptr<float>(), static_cast<size_t>(values.numel())});
      params.push_back(std::move(values));
    }
  }
  return loaded;
}

// A frozen chain that has its weights only between the first run and the release.
class Chain {
 public:
  Chain(BlockGraph graph, const WeightSource& weights)
      : graph_(std::move(graph)), weights_(weights) {}
  at::Tensor run(const at::Tensor& input) {
    if (loaded_.empty()) loaded_ = load(graph_, weights_);
    return run_chain(graph_, input, loaded_);
  }
  void release() { ChainWeights().swap(loaded_); }
  std::string identity(const std::string& part) const {
    return sha256_hex(graph_hash(graph_) + " " + weights_.identity(part));
  }
  const std::vector<int64_t>& output_shape() const {
    return graph_.values[static_cast<size_t>(graph_.output)].shape;
  }

 private:
  BlockGraph graph_;
  const WeightSource& weights_;
  ChainWeights loaded_;
};

class ModelEncoder : public Encoder {
 public:
  ModelEncoder(const EncoderParts& parts, int64_t width, int64_t height)
      : tokenizer_(parts.tokenizer),
        length_(parts.model.text_encoder.max_length),
        vae_(build_vae_encoder(parts.model, width, height), parts.weights),
        text_(build_text_encoder(parts.model), parts.weights) {}

  std::string image_identity() const override { return vae_.identity("vae"); }
  std::string text_identity() const override { return text_.identity("text_encoder"); }
  std::vector<int64_t> latent_shape() const override {
    std::vector<int64_t> shape = vae_.output_shape();
    shape[0] /= 2;  // mean and log-variance
    return shape;
  }
  std::vector<int64_t> embedding_shape() const override { return text_.output_shape(); }
  std::vector<int64_t> tokenize(std::string_view caption) const override {
    return tokenizer_.encode(caption, length_);
  }
  at::Tensor encode_image(const at::Tensor& image_nchw) override { return vae_.run(image_nchw); }
  at::Tensor encode_text(const std::vector<int64_t>& ids) override {
    return text_.run(at::tensor(ids, at::kLong).unsqueeze(0));
  }
  void release() override {
    vae_.release();
    text_.release();
  }

 private:
  const ClipTokenizer& tokenizer_;
  int64_t length_;
  Chain vae_, text_;
};

}  // namespace

std::unique_ptr<Encoder> make_encoder(const EncoderParts& parts, int64_t width, int64_t height) {
  const int64_t known = parts.model.text_encoder.vocab_size;
  if (parts.tokenizer.vocabulary_size() > known) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("the tokenizer has {} tokens, the text encoder knows {}; take the "
                                 "tokenizer folder that belongs to the model",
                                 parts.tokenizer.vocabulary_size(), known));
  }
  return std::make_unique<ModelEncoder>(parts, width, height);
}

}  // namespace stagecraft
