// What is drawn depends on seed, epoch, sample and purpose, and on nothing else.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "partitioner/base/error.h"
#include "pipeline/data/samples.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;

ModelConfig made_up_model() {
  ModelConfig model;
  model.unet.cross_attention_dim = 6;
  model.text_encoder.max_length = 5;
  return model;
}

std::vector<Draw> stream(uint64_t seed, int64_t size, int64_t batch, int64_t entries) {
  SampleOrder order(seed, size);
  std::vector<Draw> draws;
  for (int64_t step = 0; step * batch < entries; ++step) {
    for (const Draw& draw : order.batch_of_step(batch, step)) draws.push_back(draw);
  }
  draws.resize(static_cast<size_t>(entries));
  return draws;
}

TEST(Order, EveryEpochHoldsEverySampleOnce) {
  const std::vector<Draw> draws = stream(42, 10, 4, 40);
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < 10; ++i) {
      const Draw& draw = draws[static_cast<size_t>(epoch * 10 + i)];
      EXPECT_EQ(draw.epoch, epoch);
      EXPECT_TRUE(draw.sample >= 0 && draw.sample < 10);
      seen.insert(draw.sample);
    }
    EXPECT_EQ(seen.size(), 10u);
  }
}

TEST(Order, StreamIsTheSameForEveryBatchSize) {
  const std::vector<Draw> one = stream(42, 7, 1, 60);
  for (int64_t batch : {2, 3, 5, 16}) EXPECT_EQ(stream(42, 7, batch, 60), one) << batch;
}

TEST(Order, AStepIsTheSameWhateverWasAskedBefore) {
  SampleOrder order(42, 7);
  for (const int64_t step : {9, 2, 2, 0, 30}) {
    EXPECT_EQ(order.batch_of_step(3, step), SampleOrder(42, 7).batch_of_step(3, step)) << step;
  }
}

TEST(Order, BatchMayBeLargerThanTheDataset) {
  const std::vector<Draw> draws = SampleOrder(1, 2).batch_of_step(5, 0);
  ASSERT_EQ(draws.size(), 5u);
  EXPECT_EQ(draws[4].epoch, 2);
}

TEST(Order, DiffersBetweenEpochsAndSeeds) {
  EXPECT_NE(order_of_epoch(42, 50, 0), order_of_epoch(42, 50, 1));
  EXPECT_NE(order_of_epoch(42, 50, 0), order_of_epoch(43, 50, 0));
  EXPECT_EQ(order_of_epoch(42, 50, 3), order_of_epoch(42, 50, 3));
}

TEST(Order, AllPermutationsOfThreeAreAboutEquallyFrequent) {
  std::map<std::vector<int64_t>, int> counts;
  for (int64_t epoch = 0; epoch < 6000; ++epoch) ++counts[order_of_epoch(7, 3, epoch)];
  ASSERT_EQ(counts.size(), 6u);
  // Six counts of mean 1000, deviation 29: beyond five deviations means a biased shuffle.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 145);
}

TEST(Order, OneSampleIsItsOwnOrder) { EXPECT_THAT(order_of_epoch(1, 1, 9), ElementsAre(0)); }

TEST(Order, RefusesAnEmptyDataset) { EXPECT_THROW(SampleOrder(1, 0), InternalError); }

TEST(Noise, IsTheSameInAnyMicroBatch) {
  const std::vector<Draw> draws = SampleOrder(42, 100).batch_of_step(5, 3);
  const int64_t shape[] = {4, 3, 2};
  const at::Tensor whole = draw_noise(42, draws, shape);
  EXPECT_EQ(whole.sizes(), (at::IntArrayRef{5, 4, 3, 2}));
  for (size_t i = 0; i < draws.size(); ++i) {
    const at::Tensor alone = draw_noise(42, std::span(draws).subspan(i, 1), shape);
    EXPECT_TRUE(at::equal(alone[0], whole[static_cast<int64_t>(i)])) << i;
  }
}

TEST(Noise, DiffersBetweenSamplesEpochsSeedsAndPurposes) {
  const int64_t shape[] = {8};
  const Draw draw = {.epoch = 1, .sample = 2};
  const std::vector<Draw> here = {draw}, other_sample = {{.epoch = 1, .sample = 3}},
                          other_epoch = {{.epoch = 2, .sample = 2}};
  const at::Tensor base = draw_noise(42, here, shape);
  EXPECT_FALSE(at::equal(base, draw_noise(42, other_sample, shape)));
  EXPECT_FALSE(at::equal(base, draw_noise(42, other_epoch, shape)));
  EXPECT_FALSE(at::equal(base, draw_noise(43, here, shape)));
  EXPECT_FALSE(at::equal(base, draw_normal(42, here, shape, "latent")));
}

TEST(Noise, HasMeanZeroAndDeviationOne) {
  const int64_t shape[] = {40000};
  const std::vector<Draw> draws = {{.epoch = 0, .sample = 5}};
  const at::Tensor noise = draw_noise(42, draws, shape);
  EXPECT_NEAR(noise.mean().item<double>(), 0.0, 0.025);  // five deviations of the mean
  EXPECT_NEAR(noise.std().item<double>(), 1.0, 0.018);
}

TEST(Timesteps, CoverTheRangeAndAreTheSameInAnyMicroBatch) {
  const std::vector<Draw> draws = stream(42, 500, 1, 500);
  const at::Tensor steps = draw_timesteps(42, draws, 10);
  ASSERT_EQ(steps.scalar_type(), at::kLong);
  EXPECT_EQ(steps.min().item<int64_t>(), 0);
  EXPECT_EQ(steps.max().item<int64_t>(), 9);
  const at::Tensor alone = draw_timesteps(42, std::span(draws).subspan(17, 1), 10);
  EXPECT_EQ(alone[0].item<int64_t>(), steps[17].item<int64_t>());
}

TEST(AddNoise, FollowsTheFormulaForEachSample) {
  const std::vector<double> alphas = {0.99915, 0.276333, 0.0046601};
  const std::vector<Draw> draws = {{.sample = 0}, {.sample = 1}};
  const int64_t shape[] = {4, 2, 3};
  const at::Tensor latents = draw_normal(1, draws, shape, "latent"),
                   noise = draw_noise(1, draws, shape);
  const at::Tensor noisy = add_noise(latents, noise, at::tensor({2, 0}, at::kLong), alphas);
  for (int64_t i = 0; i < 2; ++i) {
    const double alpha = alphas[i == 0 ? 2 : 0];
    const at::Tensor expected = latents[i].to(at::kDouble) * std::sqrt(alpha) +
                                noise[i].to(at::kDouble) * std::sqrt(1 - alpha);
    EXPECT_LT((noisy[i].to(at::kDouble) - expected).abs().max().item<double>(), 1e-6);
  }
}

TEST(AddNoise, RefusesATimestepBeyondTheSchedule) {
  const at::Tensor x = at::zeros({1, 4, 2, 2});
  EXPECT_THROW(add_noise(x, x, at::tensor({1}, at::kLong), {0.5}), InternalError);
  EXPECT_THROW(add_noise(x, x, at::tensor({-1}, at::kLong), {0.5}), InternalError);
}

TEST(RandomSamplesTest, ShapesFollowModelAndResolution) {
  RandomSamples samples(made_up_model(), 128, 192, 10, 42);
  const std::vector<Draw> draws = {{.sample = 1}, {.sample = 4}};
  EXPECT_EQ(samples.latents(draws).sizes(), (at::IntArrayRef{2, 4, 24, 16}));
  EXPECT_EQ(samples.context(draws).sizes(), (at::IntArrayRef{2, 5, 6}));
  const at::Tensor hint = samples.hint(draws);
  EXPECT_EQ(hint.sizes(), (at::IntArrayRef{2, 3, 192, 128}));
  EXPECT_GE(hint.min().item<float>(), 0.0f);
  EXPECT_LE(hint.max().item<float>(), 1.0f);
}

TEST(RandomSamplesTest, HintAndContextStayWithTheirSample) {
  RandomSamples samples(made_up_model(), 64, 64, 10, 42);
  const std::vector<Draw> first = {{.epoch = 0, .sample = 1}}, later = {{.epoch = 3, .sample = 1}},
                          other = {{.epoch = 0, .sample = 2}};
  EXPECT_TRUE(at::equal(samples.hint(first), samples.hint(later)));
  EXPECT_TRUE(at::equal(samples.context(first), samples.context(later)));
  EXPECT_FALSE(at::equal(samples.latents(first), samples.latents(later)));
  EXPECT_FALSE(at::equal(samples.hint(first), samples.hint(other)));
  EXPECT_FALSE(at::equal(samples.context(first), samples.context(other)));
}

}  // namespace
}  // namespace stagecraft
