#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "models/weights/weight_source.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

std::vector<float> drawn(const WeightSource& source, const Param& param) {
  std::vector<float> out(static_cast<size_t>(param.elements()));
  source.read(param, out);
  return out;
}

double deviation(const std::vector<float>& x) {
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size());
  double sum = 0;
  for (const double v : x) sum += (v - mean) * (v - mean);
  return std::sqrt(sum / static_cast<double>(x.size()));
}

TEST(RandomWeights, AreAFunctionOfSeedAndName) {
  const Param a{.name = "unet.a.weight", .shape = {16, 8}};
  const Param b{.name = "unet.b.weight", .shape = {16, 8}};
  EXPECT_EQ(drawn(*random_weights(1), a), drawn(*random_weights(1), a));
  EXPECT_NE(drawn(*random_weights(1), a), drawn(*random_weights(2), a));
  EXPECT_NE(drawn(*random_weights(1), a), drawn(*random_weights(1), b));
}

TEST(RandomWeights, ElementsDoNotDependOnTheSizeOfTheTensor) {
  const auto source = random_weights(3);
  const auto large = drawn(*source, {.name = "unet.a.weight", .shape = {100, 8}});
  const auto small = drawn(*source, {.name = "unet.a.weight", .shape = {10, 8}});
  EXPECT_TRUE(std::equal(small.begin(), small.end(), large.begin()));
}

TEST(RandomWeights, MatricesAndConvolutionsKeepTheVariance) {
  const auto source = random_weights(1);
  // sqrt(1 / fan_in), 2 % of sampling error.
  EXPECT_NEAR(deviation(drawn(*source, {.name = "unet.x.weight", .shape = {400, 100}})), 0.1,
              0.002);
  EXPECT_NEAR(deviation(drawn(*source, {.name = "unet.x.weight", .shape = {400, 10, 3, 3}})),
              1 / std::sqrt(90.0), 0.003);
}

TEST(RandomWeights, NormsAreNearOneAndBiasesNearZero) {
  const auto source = random_weights(1);
  for (const float x : drawn(*source, {.name = "unet.norm1.weight", .shape = {4096}})) {
    ASSERT_GE(x, 0.9f);
    ASSERT_LE(x, 1.1f);
  }
  for (const float x : drawn(*source, {.name = "unet.norm1.bias", .shape = {4096}})) {
    ASSERT_LE(std::abs(x), 0.02f);
    ASSERT_NE(x, 0.0f);
  }
}

TEST(RandomWeights, ZeroConvolutionsAreSmallButNotZero) {
  const auto source = random_weights(1);
  const auto x = drawn(
      *source, {.name = "controlnet.controlnet_down_blocks.3.weight", .shape = {64, 64, 1, 1}});
  EXPECT_NEAR(deviation(x), 0.2 / 8, 0.001);
  for (const float v : x) ASSERT_NE(v, 0.0f);
}

TEST(RandomWeights, IdentityTellsSeedsAndPartsApart) {
  EXPECT_EQ(random_weights(1)->identity("unet"), random_weights(1)->identity("unet"));
  EXPECT_NE(random_weights(1)->identity("unet"), random_weights(2)->identity("unet"));
  EXPECT_NE(random_weights(1)->identity("unet"), random_weights(1)->identity("vae"));
}

TEST(RandomWeights, RefuseATargetOfAnotherSize) {
  std::vector<float> out(3);
  EXPECT_THROW(random_weights(1)->read({.name = "unet.a.weight", .shape = {4}}, out),
               InternalError);
}

}  // namespace
}  // namespace stagecraft
