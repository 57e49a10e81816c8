#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "models/weights/convert.h"

namespace stagecraft {
namespace {

std::vector<uint16_t> all_patterns() {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

TEST(Convert, EveryHalfBecomesItsExactValue) {
  const auto in = all_patterns();
  std::vector<float> out(in.size());
  half_to_float(in, out);
  for (size_t i = 0; i < in.size(); ++i) {
    const int exponent = (in[i] >> 10) & 31, mantissa = in[i] & 1023;
    double expected = exponent == 0    ? std::ldexp(mantissa, -24)
                      : exponent != 31 ? std::ldexp(1024 + mantissa, exponent - 25)
                                       : std::numeric_limits<double>::infinity();
    if (in[i] & 0x8000) expected = -expected;
    if (exponent == 31 && mantissa != 0) {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    } else {
      ASSERT_EQ(static_cast<double>(out[i]), expected) << i;
      ASSERT_EQ(std::signbit(out[i]), std::signbit(expected)) << i;
    }
  }
}

TEST(Convert, EveryHalfComesBackFromFloat) {
  const auto in = all_patterns();
  std::vector<float> floats(in.size());
  std::vector<uint16_t> back(in.size());
  half_to_float(in, floats);
  float_to_half(floats, back);
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_EQ(back[i] & 0x7e00, 0x7e00) << i;
    } else {
      ASSERT_EQ(back[i], in[i]) << i;
    }
  }
}

TEST(Convert, FloatsRoundToTheNearestHalfTiesToEven) {
  const std::vector<float> in = {1.0f + 0x1p-11f,      // between 1 and its neighbour: even is 1
                                 1.0f + 3 * 0x1p-11f,  // even is 1 + 2^-9
                                 1.0f + 0x1.1p-11f,    // just above the tie
                                 65519.0f,
                                 65520.0f,    // largest that rounds down; first infinite
                                 0x1p-25f,    // half of the smallest: even is 0
                                 0x1.8p-24f,  // even is 2 * 2^-24
                                 0x1.ffcp-15f + 0x1p-26f,  // rounds up to the smallest normal
                                 -0.0f,
                                 1e-30f};
  std::vector<uint16_t> out(in.size());
  float_to_half(in, out);
  const std::vector<uint16_t> expected = {0x3c00, 0x3c02, 0x3c01, 0x7bff, 0x7c00,
                                          0x0000, 0x0002, 0x0400, 0x8000, 0x0000};
  EXPECT_EQ(out, expected);
}

TEST(Convert, BFloat16IsTheUpperHalfOfAFloat) {
  const std::vector<uint16_t> in = {0x3f80, 0xc040, 0x0001, 0x7f80};
  std::vector<float> out(in.size());
  bfloat16_to_float(in, out);
  EXPECT_EQ(out,
            (std::vector<float>{1.0f, -3.0f, 0x1p-133f, std::numeric_limits<float>::infinity()}));
}

TEST(Convert, FindsWhatIsNotFinite) {
  std::vector<float> x(1000, std::numeric_limits<float>::max());
  EXPECT_TRUE(all_finite(x));
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    x[777] = bad;
    EXPECT_FALSE(all_finite(x));
  }
}

}  // namespace
}  // namespace stagecraft
