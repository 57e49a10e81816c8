// The model's own encoder: shapes, identities, and weights that are there only while they are
// needed.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "models/weights/weight_source.h"
#include "pipeline/data/encoder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace stagecraft {
namespace {

// Counts parameters read, by part.
class CountingWeights : public WeightSource {
 public:
  explicit CountingWeights(uint64_t seed) : weights_(random_weights(seed)) {}
  void read(const Param& param, std::span<float> out) const override {
    ++(param.name.starts_with("vae.") ? vae : text);
    weights_->read(param, out);
  }
  std::string identity(const std::string& part) const override { return weights_->identity(part); }
  mutable int vae = 0, text = 0;

 private:
  std::unique_ptr<WeightSource> weights_;
};

class ModelEncoderTest : public ::testing::Test {
 protected:
  ModelEncoderTest() {
    model_.vae.block_out_channels = {32, 32, 32, 32};
    model_.vae.layers_per_block = 1;
    model_.text_encoder.vocab_size = 16;
    folder_.write("vocab.json", R"({"a": 0, "a</w>": 1, "b</w>": 2, "ab</w>": 3,
        "<|startoftext|>": 4, "<|endoftext|>": 5})");
    folder_.write("merges.txt", "#version: 0.2\na b</w>\n");
    tokenizer_ = std::make_unique<ClipTokenizer>(folder_.path().string());
  }
  std::unique_ptr<Encoder> open(const WeightSource& weights, int64_t width = 64,
                                int64_t height = 128) {
    return make_encoder({.model = model_, .weights = weights, .tokenizer = *tokenizer_}, width,
                        height);
  }

  TempFolder folder_;
  ModelConfig model_ = tiny_model();
  std::unique_ptr<ClipTokenizer> tokenizer_;
  CountingWeights weights_{1};
};

TEST_F(ModelEncoderTest, GivesMomentsAndEmbeddingsOfTheShapesItNames) {
  const auto encoder = open(weights_);
  EXPECT_EQ(encoder->latent_shape(), (std::vector<int64_t>{4, 16, 8}));
  EXPECT_EQ(encoder->embedding_shape(), (std::vector<int64_t>{77, 96}));
  const at::Tensor moments = encoder->encode_image(at::zeros({1, 3, 128, 64}));
  EXPECT_EQ(moments.sizes(), (at::IntArrayRef{1, 8, 16, 8}));
  const at::Tensor embedding = encoder->encode_text(encoder->tokenize("ab"));
  EXPECT_EQ(embedding.sizes(), (at::IntArrayRef{1, 77, 96}));
  EXPECT_FALSE(at::equal(embedding, encoder->encode_text(encoder->tokenize(""))));
}

TEST_F(ModelEncoderTest, LoadsWeightsWhenNeededAndAgainAfterRelease) {
  const auto encoder = open(weights_);
  EXPECT_EQ(weights_.vae + weights_.text, 0);
  const at::Tensor first = encoder->encode_text(encoder->tokenize("ab"));
  const int once = weights_.text;
  EXPECT_GT(once, 0);
  EXPECT_EQ(weights_.vae, 0);
  encoder->encode_text(encoder->tokenize("a"));
  EXPECT_EQ(weights_.text, once);
  encoder->release();
  EXPECT_TRUE(at::equal(encoder->encode_text(encoder->tokenize("ab")), first));
  EXPECT_EQ(weights_.text, 2 * once);
}

TEST_F(ModelEncoderTest, IdentityFollowsWeightsNetworkAndResolution) {
  const CountingWeights other_weights(2);
  const auto base = open(weights_), same = open(weights_), other = open(other_weights),
             larger = open(weights_, 128, 128);
  EXPECT_EQ(base->image_identity(), same->image_identity());
  EXPECT_NE(base->image_identity(), other->image_identity());
  EXPECT_NE(base->image_identity(), larger->image_identity());
  EXPECT_NE(base->text_identity(), other->text_identity());
  EXPECT_EQ(base->text_identity(), larger->text_identity());
  model_.text_encoder.layers = 1;
  EXPECT_NE(base->text_identity(), open(weights_)->text_identity());
}

}  // namespace
}  // namespace stagecraft
