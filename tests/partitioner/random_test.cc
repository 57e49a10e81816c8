#include "partitioner/base/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

std::vector<float> normals(const RandomKey& key, size_t n) {
  std::vector<float> out(n);
  fill_normal(key, out);
  return out;
}

// Known answers of Random123's `kat_vectors`, philox4x32 with 10 rounds.
TEST(Philox, AnswersThePublishedVectors) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, ElementDependsOnKeyAndPositionOnly) {
  const RandomKey key{.seed = 7, .index = 3, .sample = 11, .purpose = "noise"};
  const auto all = normals(key, 1000);
  for (const size_t n : {1u, 3u, 255u, 256u, 257u, 999u}) {
    const auto some = normals(key, n);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << n;
  }
  std::vector<float> u_all(1000), u_some(301);
  fill_uniform(key, u_all);
  fill_uniform(key, u_some);
  EXPECT_TRUE(std::equal(u_some.begin(), u_some.end(), u_all.begin()));
}

TEST(Random, EveryFieldOfTheKeyMatters) {
  const std::vector<RandomKey> keys = {
      {.seed = 1, .index = 2, .sample = 3, .purpose = "noise"},
      {.seed = 2, .index = 2, .sample = 3, .purpose = "noise"},
      {.seed = 1, .index = 3, .sample = 3, .purpose = "noise"},
      {.seed = 1, .index = 2, .sample = 4, .purpose = "noise"},
      {.seed = 1, .index = 2, .sample = 3, .purpose = "noisf"},
      {.seed = 1, .index = 3, .sample = 2, .purpose = "noise"},
      {.seed = 1ull << 63, .index = 2, .sample = 3, .purpose = "noise"},
  };
  std::set<double> firsts;
  for (const auto& key : keys) firsts.insert(uniform(key));
  EXPECT_EQ(firsts.size(), keys.size());
}

// The words behind the numbers are the plain block function's, whatever way the fill is batched.
TEST(Random, UniformFillAgreesWithScalarUniformOnItsFirstWords) {
  const RandomKey key{.seed = 5, .purpose = "x"};
  std::vector<float> u(8);
  fill_uniform(key, u);
  const double scalar = uniform(key);  // upper word is word 1
  EXPECT_EQ(u[1], static_cast<float>(std::floor(scalar * 0x1p24) * 0x1p-24));
}

TEST(Random, NormalsAreBoxMullerOfTheUniforms) {
  // 32-bit words are not visible from outside; their upper 24 bits are, which bounds the
  // difference.
  const RandomKey key{.seed = 9, .purpose = "check"};
  std::vector<float> u(4096), z(4096);
  fill_uniform(key, u);
  fill_normal(key, z);
  for (size_t i = 0; i < z.size(); i += 2) {
    if (u[i] < 1e-3f) continue;
    const double r = std::sqrt(-2.0 * std::log(static_cast<double>(u[i]) + 0x1p-25));
    const double a = 2.0 * M_PI * (static_cast<double>(u[i + 1]) + 0x1p-25);
    EXPECT_NEAR(z[i], r * std::cos(a), 2e-4) << i;
    EXPECT_NEAR(z[i + 1], r * std::sin(a), 2e-4) << i;
  }
}

TEST(Random, NormalsHaveTheRightMomentsAndTails) {
  const size_t n = 1 << 20;
  const auto z = normals({.seed = 1, .purpose = "moments"}, n);
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
  size_t beyond2 = 0, beyond3 = 0;
  for (const double x : z) {
    m1 += x, m2 += x * x, m3 += x * x * x, m4 += x * x * x * x;
    beyond2 += std::abs(x) > 2, beyond3 += std::abs(x) > 3;
  }
  const double count = static_cast<double>(n);
  // Five standard errors: 1, sqrt(2), sqrt(15), sqrt(96) over sqrt(n).
  EXPECT_NEAR(m1 / count, 0.0, 5 / 1024.0);
  EXPECT_NEAR(m2 / count, 1.0, 5 * 1.42 / 1024.0);
  EXPECT_NEAR(m3 / count, 0.0, 5 * 3.88 / 1024.0);
  EXPECT_NEAR(m4 / count, 3.0, 5 * 9.80 / 1024.0);
  EXPECT_NEAR(static_cast<double>(beyond2) / count, 0.0455003, 5 * 0.209 / 1024.0);
  EXPECT_NEAR(static_cast<double>(beyond3) / count, 0.0026998, 5 * 0.052 / 1024.0);
}

TEST(Random, NeighboursAreUncorrelated) {
  const size_t n = 1 << 18;
  const auto z = normals({.seed = 2, .purpose = "lag"}, n);
  for (const size_t lag : {1u, 2u, 3u, 4u, 64u, 256u}) {
    double sum = 0;
    for (size_t i = lag; i < n; ++i) sum += static_cast<double>(z[i]) * z[i - lag];
    EXPECT_LT(std::abs(sum / static_cast<double>(n)), 5 / 512.0) << lag;
  }
}

TEST(Random, UniformStaysInItsRange) {
  std::vector<float> u(1 << 18);
  fill_uniform({.seed = 3, .purpose = "range"}, u);
  double sum = 0;
  for (const float x : u) {
    ASSERT_GE(x, 0.0f);
    ASSERT_LT(x, 1.0f);
    sum += x;
  }
  EXPECT_NEAR(sum / static_cast<double>(u.size()), 0.5, 5 * 0.289 / 512.0);
}

TEST(Random, UniformIntCoversItsRangeEvenly) {
  std::vector<int> seen(6);
  for (uint64_t i = 0; i < 60000; ++i) {
    const uint64_t x = uniform_int({.seed = 4, .index = i, .purpose = "dice"}, 6);
    ASSERT_LT(x, 6u);
    ++seen[x];
  }
  for (const int count : seen) EXPECT_NEAR(count, 10000, 5 * 92);
}

TEST(Random, UniformIntHasNoModuloBias) {
  // With n = 3/4 of 2^64 a modulo would draw the lower third twice as often as it should.
  const uint64_t n = 3ull << 62;
  int low = 0;
  for (uint64_t i = 0; i < 30000; ++i) {
    const uint64_t x = uniform_int({.seed = 4, .index = i, .purpose = "bias"}, n);
    ASSERT_LT(x, n);
    low += x < (1ull << 62);
  }
  EXPECT_NEAR(low, 10000, 5 * 82);
}

TEST(Random, UniformIntOfOneIsZeroAndOfZeroIsRefused) {
  EXPECT_EQ(uniform_int({.seed = 1, .purpose = "one"}, 1), 0u);
  EXPECT_THROW(uniform_int({.seed = 1, .purpose = "none"}, 0), InternalError);
}

// Fixed bits: a change here changes every run that is resumed. The values come from a second
// implementation in Python.
TEST(Random, BitsDoNotChange) {
  const auto z = normals({.seed = 42, .index = 1, .sample = 2, .purpose = "noise"}, 1032);
  const std::vector<float> first(z.begin(), z.begin() + 4), later(z.begin() + 1028, z.end());
  EXPECT_EQ(first, (std::vector<float>{-1.00591135f, 0.61121875f, -0.37192136f, 1.84942114f}));
  EXPECT_EQ(later, (std::vector<float>{-1.15176678f, -0.474208921f, 0.885974109f, -0.782588601f}));
}

}  // namespace
}  // namespace stagecraft
