// Counter-based random numbers: pure functions of a key, so that any rank, micro-batch, number of
// stages or resumed run draws the same. Philox 4x32-10 (Salmon et al., SC 2011).
//
// Key derivation: SHA-256 over "stagecraft.random.1", seed, index, sample (8 bytes each,
// little-endian) and purpose. Its first two little-endian words are the Philox key, the next two
// the upper half of the counter; block j (four words) has j in the lower half, and element i of a
// fill comes from block i / 4. Only IEEE additions, multiplications, divisions and square roots are
// used, never libm, and never fused: the bits are the same on every machine and compiler. Calls
// with one key share their words: give each use its own purpose.
//
// Any thread; no state.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

namespace stagecraft {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t index = 0;        // epoch or step
  uint64_t sample = 0;       // sample id
  std::string_view purpose;  // "noise", "timestep", "latent", "caption", "order", "weight:<name>"
};

// One Philox block: four 32-bit words for (key, counter).
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Standard normal numbers (Box-Muller in double, rounded to float; at most 6.77 in size). Element i
// depends on key and i only.
void fill_normal(const RandomKey& key, std::span<float> out);
// Uniform in [0, 1), multiples of 2^-24.
void fill_uniform(const RandomKey& key, std::span<float> out);
// Uniform in [0, 1), a multiple of 2^-53.
double uniform(const RandomKey& key);
// Uniform integer in [0, n), without modulo bias. Throws InternalError for n = 0.
uint64_t uniform_int(const RandomKey& key, uint64_t n);

}  // namespace stagecraft
