// Samples out of the cache: the values, what is random about them, and files that change under a
// run.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "partitioner/base/error.h"
#include "pipeline/data/cache_layout.h"
#include "pipeline/data/cached_samples.h"
#include "pipeline/data/images.h"
#include "tests/support/expect_error.h"
#include "tests/support/fake_encoder.h"
#include "tests/support/picture_set.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

class FromCache : public ::testing::Test {
 protected:
  FromCache() {
    model_.unet.cross_attention_dim = 6;
    model_.text_encoder.max_length = 5;
    manifest_ = fill_cache(set_.read(), encoder_, set_.options()).manifest;
  }
  CachedSamples open(double caption_dropout = 0.0) {
    return CachedSamples(set_.read(), model_,
                         {.manifest = manifest_,
                          .width = 64,
                          .height = 96,
                          .seed = 42,
                          .caption_dropout = caption_dropout});
  }
  // The encoder's input of a sample.
  static at::Tensor image(int sample) {
    return target_tensor(decode_picture(encode(PictureSet::picture(sample), ".png"))).unsqueeze(0);
  }

  PictureSet set_{4};
  FakeEncoder encoder_{64, 96};
  ModelConfig model_;
  std::string manifest_;
  const std::vector<Draw> draws_ = {{.epoch = 0, .sample = 2}, {.epoch = 1, .sample = 0}};
};

TEST_F(FromCache, LatentsAreDrawnFromThePosterior) {
  CachedSamples samples = open();
  const at::Tensor latents = samples.latents(draws_);
  ASSERT_EQ(latents.sizes(), (at::IntArrayRef{2, 4, 12, 8}));
  const int64_t shape[] = {4, 12, 8};
  const at::Tensor noise = draw_normal(42, draws_, shape, "latent");
  const double deviations[] = {std::exp(0.5), std::exp(10.0), std::exp(-15.0), std::exp(0.5)};
  for (int64_t i = 0; i < 2; ++i) {
    const at::Tensor mean = encoder_.encode_image(image(i == 0 ? 2 : 0))[0];
    for (int64_t c = 0; c < 4; ++c) {
      const at::Tensor expected = (mean[c] + noise[i][c] * deviations[c]) * 0.18215;
      const double error = (latents[i][c] - expected).abs().max().item<double>();
      EXPECT_LT(error, 1e-6 * std::max(1.0, deviations[c])) << i << " " << c;
    }
  }
}

TEST_F(FromCache, LatentsDifferFromEpochToEpochAndNotFromBatchToBatch) {
  CachedSamples samples = open();
  const std::vector<Draw> again = {{.epoch = 1, .sample = 2}};
  const at::Tensor both = samples.latents(draws_);
  EXPECT_FALSE(at::equal(both[0], samples.latents(again)[0]));
  EXPECT_TRUE(at::equal(both[1], samples.latents(std::span(draws_).subspan(1))[0]));
}

TEST_F(FromCache, ContextIsTheCaptionsEmbedding) {
  CachedSamples samples = open();
  const at::Tensor context = samples.context(draws_);
  ASSERT_EQ(context.sizes(), (at::IntArrayRef{2, 5, 6}));
  EXPECT_TRUE(at::equal(context[0], encoder_.encode_text(encoder_.tokenize("caption 2"))[0]));
  EXPECT_TRUE(at::equal(context[1], encoder_.encode_text(encoder_.tokenize("caption 0"))[0]));
}

TEST_F(FromCache, CaptionIsDroppedWithTheProbabilityAsked) {
  std::vector<Draw> draws;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    for (int64_t sample = 0; sample < 4; ++sample)
      draws.push_back({.epoch = epoch, .sample = sample});
  }
  const auto dropped = [&](double probability) {
    const at::Tensor context = open(probability).context(draws);
    const at::Tensor empty = encoder_.encode_text(encoder_.tokenize(""))[0];
    return context.eq(empty).flatten(1).all(1);
  };
  EXPECT_EQ(dropped(0.0).sum().item<int64_t>(), 0);
  EXPECT_EQ(dropped(1.0).sum().item<int64_t>(), 400);
  // 400 draws at 0.3: mean 120, deviation 9.2.
  EXPECT_NEAR(dropped(0.3).sum().item<double>(), 120, 46);
  EXPECT_TRUE(at::equal(dropped(0.3), dropped(0.3)));
  // Not the same captions in every epoch.
  const at::Tensor of_first = dropped(0.3).view({100, 4}).select(1, 0);
  EXPECT_FALSE(of_first.all().item<bool>());
  EXPECT_TRUE(of_first.any().item<bool>());
}

TEST_F(FromCache, HintIsTheSourceInZeroToOne) {
  CachedSamples samples = open();
  const at::Tensor hint = samples.hint(draws_);
  ASSERT_EQ(hint.sizes(), (at::IntArrayRef{2, 3, 96, 64}));
  EXPECT_TRUE(at::equal(hint[0], at::full({3, 96, 64}, 2.0f / 255.0f)));
  EXPECT_TRUE(at::equal(hint[1], at::zeros({3, 96, 64})));
}

TEST_F(FromCache, NamesASourceThatVanishedOrChanged) {
  CachedSamples samples = open();
  std::filesystem::remove(set_.path("s2.png"));
  EXPECT_THAT(data_fault([&] { samples.hint(draws_); }),
              HasSubstr("prompt.json:3: source \"s2.png\": no such file"));
  set_.write("s2.png", encode(PictureSet::picture(7), ".png"));
  EXPECT_THAT(data_fault([&] { samples.hint(draws_); }),
              HasSubstr(":3: source \"s2.png\": changed since"));
}

TEST_F(FromCache, NamesACacheFileWithAFlippedBit) {
  const std::string key = read_manifest(manifest_, set_.read()).latents[2];
  const std::string path = CacheStore(set_.cache(), kLatentsFolder).path_of(key);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x55');
  file.close();
  EXPECT_THAT(
      data_fault([&] { open().latents(draws_); }),
      AllOf(HasSubstr(path), HasSubstr("checksum of \"std\""), HasSubstr("delete this file")));
}

TEST_F(FromCache, NamesACacheFileThatIsGone) {
  const std::string key = read_manifest(manifest_, set_.read()).captions[0];
  std::filesystem::remove(CacheStore(set_.cache(), kCaptionsFolder).path_of(key));
  EXPECT_EQ(data_fault([&] { open().context(draws_); }), "no fault");
  EXPECT_THAT(data_fault([&] { open(1.0).context(draws_); }), HasSubstr(key));
}

TEST_F(FromCache, RefusesAnIndexThatChangedAndAnotherResolution) {
  EXPECT_THAT(data_fault([&] {
                CachedSamples(set_.read(), model_,
                              {.manifest = manifest_, .width = 96, .height = 64});
              }),
              HasSubstr("filled for 64 x 96 pixels, not for 96 x 64"));
  set_.add("s0.png", "t0.png", "one more");
  EXPECT_THAT(data_fault([&] { open(); }), HasSubstr("changed since the cache was filled"));
}

}  // namespace
}  // namespace stagecraft
