// Half-precision numbers to fp32 and back, exactly as IEEE 754 says. Plain loops over bytes; any
// thread.
#pragma once

#include <cstdint>
#include <span>

namespace stagecraft {

// Every value has an exact fp32 twin; sizes must agree.
void half_to_float(std::span<const uint16_t> in, std::span<float> out);
void bfloat16_to_float(std::span<const uint16_t> in, std::span<float> out);
// Rounds to nearest, ties to even; what is too large becomes infinite, NaN stays NaN.
void float_to_half(std::span<const float> in, std::span<uint16_t> out);
bool all_finite(std::span<const float> values);

}  // namespace stagecraft
