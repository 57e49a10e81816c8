#include "partitioner/base/random.h"

#include <openssl/sha.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>

#include "partitioner/base/error.h"

// Results must not depend on whether the compiler fuses multiplications and additions.
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#define STAGECRAFT_NO_FMA
#else
#define STAGECRAFT_NO_FMA __attribute__((optimize("fp-contract=off")))
#endif

namespace stagecraft {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

// One stream of numbers: block j has the counter {low(j), high(j), lane[0], lane[1]}.
struct Stream {
  std::array<uint32_t, 2> key;
  std::array<uint32_t, 2> lane;
};

void append_little_endian(std::string& text, uint64_t value) {
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(value >> (8 * i)));
}

Stream derive(const RandomKey& key) {
  std::string text = "stagecraft.random.1";
  append_little_endian(text, key.seed);
  append_little_endian(text, key.index);
  append_little_endian(text, key.sample);
  text.append(key.purpose);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  check(SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest) != nullptr,
        "SHA-256 failed");
  const auto word = [&](int i) {
    const unsigned char* p = digest + ptrdiff_t{4} * i;
    return static_cast<uint32_t>(p[0]) | static_cast<uint32_t>(p[1]) << 8 |
           static_cast<uint32_t>(p[2]) << 16 | static_cast<uint32_t>(p[3]) << 24;
  };
  return {.key = {word(0), word(1)}, .lane = {word(2), word(3)}};
}

std::array<uint32_t, 4> block(const Stream& stream, uint64_t j) {
  return philox(
      {static_cast<uint32_t>(j), static_cast<uint32_t>(j >> 32), stream.lane[0], stream.lane[1]},
      stream.key);
}

// Blocks are made kBatch at a time in separate arrays of words, so that the loops vectorise.
constexpr int kBatch = 64;
struct Words {
  alignas(64) uint32_t w[4][kBatch];
};

void make_blocks(const Stream& stream, uint64_t first, Words& out) {
  for (int i = 0; i < kBatch; ++i) {
    const uint64_t j = first + static_cast<uint64_t>(i);
    out.w[0][i] = static_cast<uint32_t>(j);
    out.w[1][i] = static_cast<uint32_t>(j >> 32);
    out.w[2][i] = stream.lane[0];
    out.w[3][i] = stream.lane[1];
  }
  uint32_t k0 = stream.key[0], k1 = stream.key[1];
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kBatch; ++i) {
      const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * out.w[0][i];
      const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * out.w[2][i];
      const uint32_t c1 = out.w[1][i], c3 = out.w[3][i];
      out.w[0][i] = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      out.w[1][i] = static_cast<uint32_t>(p1);
      out.w[2][i] = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      out.w[3][i] = static_cast<uint32_t>(p0);
    }
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
}

// Natural logarithm of (bits + 0.5) / 2^32 by 2 atanh((m-1)/(m+1)), m in [sqrt(1/2), sqrt(2));
// error below 1e-14. Own polynomials instead of libm: the same bits on every machine, and they
// vectorise.
STAGECRAFT_NO_FMA inline double log_of_word(uint32_t bits) {
  const double u = (static_cast<double>(bits) + 0.5) * 0x1p-32;
  uint64_t pattern;
  std::memcpy(&pattern, &u, sizeof pattern);
  // Shifts the mantissa so that the exponent rounds to the nearer power of two around sqrt(1/2).
  const uint64_t shifted = pattern - 0x3FE6A09E667F3BCDull;
  const auto exponent = static_cast<int32_t>(static_cast<int64_t>(shifted) >> 52);
  pattern -= shifted & 0xFFF0000000000000ull;
  double m;
  std::memcpy(&m, &pattern, sizeof m);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 19.0;
  p = p * z + 1.0 / 17.0;
  p = p * z + 1.0 / 15.0;
  p = p * z + 1.0 / 13.0;
  p = p * z + 1.0 / 11.0;
  p = p * z + 1.0 / 9.0;
  p = p * z + 1.0 / 7.0;
  p = p * z + 1.0 / 5.0;
  p = p * z + 1.0 / 3.0;
  p = p * z + 1.0;
  return 2.0 * s * p + static_cast<double>(exponent) * 0.69314718055994530942;
}

// Cosine and sine of 2 pi bits / 2^32: the nearest quarter turn is split off exactly, what is left
// is in [-pi/4, pi/4].
STAGECRAFT_NO_FMA inline void turn(uint32_t bits, double& cosine, double& sine) {
  const uint32_t quarter = (bits + 0x20000000u) >> 30;
  const auto rest = static_cast<int32_t>(bits - (quarter << 30));
  const double x = static_cast<double>(rest) * (6.28318530717958647693 * 0x1p-32);
  const double z = x * x;
  double s = -1.0 / 1307674368000.0;
  s = s * z + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  s = s * z * x + x;
  double c = 1.0 / 20922789888000.0;
  c = c * z - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  c = c * z - 0.5;
  c = c * z + 1.0;
  const bool swap = (quarter & 1u) != 0;
  const double a = swap ? s : c, b = swap ? c : s;
  cosine = ((quarter + 1u) & 2u) != 0 ? -a : a;
  sine = (quarter & 2u) != 0 ? -b : b;
}

// Four normals of each of kBatch blocks: words 0 and 1 make the first pair, 2 and 3 the second.
STAGECRAFT_NO_FMA void normals_of(const Words& words, float* out) {
  alignas(64) double c[kBatch], s[kBatch], r[kBatch];
  for (size_t pair = 0; pair < 2; ++pair) {
    const uint32_t* radius = words.w[2 * pair];
    const uint32_t* angle = words.w[2 * pair + 1];
    for (int i = 0; i < kBatch; ++i) r[i] = std::sqrt(-2.0 * log_of_word(radius[i]));
    for (int i = 0; i < kBatch; ++i) turn(angle[i], c[i], s[i]);
    for (int i = 0; i < kBatch; ++i) {
      out[4 * i + 2 * pair] = static_cast<float>(r[i] * c[i]);
      out[4 * i + 2 * pair + 1] = static_cast<float>(r[i] * s[i]);
    }
  }
}

void uniforms_of(const Words& words, float* out) {
  for (int i = 0; i < kBatch; ++i) {
    for (int k = 0; k < 4; ++k) {
      out[4 * i + k] = static_cast<float>(words.w[k][i] >> 8) * 0x1p-24f;
    }
  }
}

template <typename Convert>
void fill(const RandomKey& key, std::span<float> out, Convert convert) {
  const Stream stream = derive(key);
  Words words{};
  std::array<float, 4 * kBatch> values{};
  uint64_t next = 0;
  for (size_t at = 0; at < out.size(); at += values.size(), next += kBatch) {
    make_blocks(stream, next, words);
    const size_t count = std::min(values.size(), out.size() - at);
    if (count == values.size()) {
      convert(words, out.data() + at);
    } else {
      convert(words, values.data());
      std::copy_n(values.data(), count, out.data() + at);
    }
  }
}

}  // namespace

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t p1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

void fill_normal(const RandomKey& key, std::span<float> out) { fill(key, out, normals_of); }

void fill_uniform(const RandomKey& key, std::span<float> out) { fill(key, out, uniforms_of); }

double uniform(const RandomKey& key) {
  const auto words = block(derive(key), 0);
  const uint64_t bits = static_cast<uint64_t>(words[1]) << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

uint64_t uniform_int(const RandomKey& key, uint64_t n) {
  check(n > 0, "uniform_int needs n > 0");
  const Stream stream = derive(key);
  // Lemire's multiplication with rejection (ACM TOMACS 29, 2019).
  const uint64_t threshold = (0 - n) % n;
  for (uint64_t j = 0;; ++j) {
    const auto words = block(stream, j);
    const uint64_t bits = static_cast<uint64_t>(words[1]) << 32 | words[0];
    const unsigned __int128 product = static_cast<unsigned __int128>(bits) * n;
    if (static_cast<uint64_t>(product) >= threshold) return static_cast<uint64_t>(product >> 64);
  }
}

}  // namespace stagecraft
