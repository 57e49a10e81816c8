// Deliberate mistakes that tests switch on to prove that the suite would notice them.
//
// The programs only ask; what switches one on is tests/support/scoped_mistake.h, which no program
// can include, so no flag, environment variable or file reaches them. Process-wide. `made` is one
// relaxed load, asked where a tensor or a step is handled, never per element. Those marked (tests)
// are made by the tests' own harness (tests/support), which needs no hook in the programs;
// tests/pipeline/mistakes_test.cc shows which check notices each.
#pragma once

#include <atomic>
#include <cstdint>

namespace stagecraft {

enum class Mistake : uint32_t {
  kScalePerStage,        // a gradient is divided by the micro-batches at every stage it enters
  kMeanOfMeans,          // every micro-batch weighs the same, however many samples it holds
  kClipPerStage,         // every rank clips by the norm of its own gradients
  kSwappedMicroBatches,  // the last rank takes the first micro-batch for the second (tests)
  kResidualAddedTwice,   // ControlNet's middle residual is added twice (tests)
  kSkipGradientDropped,  // where a value's gradients meet, only the main path's is kept
  kFoldInWrongOrder,     // a rank adds its own gradients first, then what other ranks sent
  kTanhGelu,             // GEGLU's GELU by the tanh approximation
  kGroupNormEps,         // every group norm with ten times its eps
  kZeroForNone,          // a parameter that the loss does not reach has a gradient of zeros (tests)
  kSharedNoise,          // the samples of a micro-batch share the noise of its first
  kStaleWeights,         // the second micro-batch sees the weights of the step before (tests)
};

namespace internal {
inline std::atomic<uint32_t> mistakes_made{0};
inline uint32_t bit_of(Mistake mistake) { return 1u << static_cast<uint32_t>(mistake); }
}  // namespace internal

inline bool made(Mistake mistake) {
  return (internal::mistakes_made.load(std::memory_order_relaxed) & internal::bit_of(mistake)) != 0;
}

}  // namespace stagecraft
