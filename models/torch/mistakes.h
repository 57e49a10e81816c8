// Deliberate mistakes that tests switch on to prove that a comparison would notice them.
//
// Nothing but `ScopedMistake` switches one on: no flag, environment variable or file reaches this
// header, so the programs cannot. Process-wide; a test owns the process while a ScopedMistake
// lives.
#pragma once

#include <atomic>
#include <cstdint>

namespace stagecraft::mistakes {

enum class Mistake : uint32_t {
  kTanhGelu = 1u << 0,      // GEGLU's GELU by the tanh approximation
  kGroupNormEps = 1u << 1,  // every group norm with ten times its eps
};

inline std::atomic<uint32_t> switched_on{0};

inline bool active(Mistake mistake) {
  return (switched_on.load(std::memory_order_relaxed) & static_cast<uint32_t>(mistake)) != 0;
}

class ScopedMistake {
 public:
  explicit ScopedMistake(Mistake mistake) : bit_(static_cast<uint32_t>(mistake)) {
    switched_on.fetch_or(bit_);
  }
  ~ScopedMistake() { switched_on.fetch_and(~bit_); }
  ScopedMistake(const ScopedMistake&) = delete;
  ScopedMistake& operator=(const ScopedMistake&) = delete;

 private:
  uint32_t bit_;
};

}  // namespace stagecraft::mistakes
