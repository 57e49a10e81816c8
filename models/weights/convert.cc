#include "models/weights/convert.h"

#include <bit>
#include <cstddef>

#include "partitioner/base/error.h"

namespace stagecraft {

void half_to_float(std::span<const uint16_t> in, std::span<float> out) {
  check(in.size() == out.size(), "half_to_float: sizes differ");
  for (size_t i = 0; i < in.size(); ++i) {
    const uint32_t sign = static_cast<uint32_t>(in[i] & 0x8000u) << 16;
    const uint32_t magnitude = static_cast<uint32_t>(in[i] & 0x7fffu) << 13;
    const uint32_t exponent = magnitude & 0x0f800000u;
    // Biases differ by 112; infinity and NaN need 112 more.
    const uint32_t normal = magnitude + (112u << 23) + (exponent == 0x0f800000u ? 112u << 23 : 0u);
    // Subnormals: with exponent 113 they are 2^-14 too large, exactly.
    const float subnormal =
        std::bit_cast<float>(magnitude + (113u << 23)) - std::bit_cast<float>(113u << 23);
    const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
    out[i] = std::bit_cast<float>(bits | sign);
  }
}

void bfloat16_to_float(std::span<const uint16_t> in, std::span<float> out) {
  check(in.size() == out.size(), "bfloat16_to_float: sizes differ");
  for (size_t i = 0; i < in.size(); ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(in[i]) << 16);
  }
}

void float_to_half(std::span<const float> in, std::span<uint16_t> out) {
  check(in.size() == out.size(), "float_to_half: sizes differ");
  for (size_t i = 0; i < in.size(); ++i) {
    const uint32_t bits = std::bit_cast<uint32_t>(in[i]);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude > 0x7f800000u) {
      half = 0x7e00u;  // NaN
    } else if (magnitude >= 0x477ff000u) {
      half = 0x7c00u;  // 65520 and above
    } else if (magnitude < 0x38800000u) {
      // Below 2^-14: adding 0.5 rounds to multiples of 2^-24, the spacing of subnormals.
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      half = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5f);
    } else {
      const uint32_t odd = (magnitude >> 13) & 1u;
      half = (magnitude - (112u << 23) + 0xfffu + odd) >> 13;
    }
    out[i] = static_cast<uint16_t>(half | sign);
  }
}

bool all_finite(std::span<const float> values) {
  uint32_t bad = 0;
  for (const float value : values) {
    const uint32_t exponent = std::bit_cast<uint32_t>(value) & 0x7f800000u;
    bad |= exponent == 0x7f800000u ? 1u : 0u;
  }
  return bad == 0;
}

}  // namespace stagecraft
