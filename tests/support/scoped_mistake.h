// Switches one deliberate mistake on. A test owns the process while one lives.
#pragma once

#include "partitioner/base/mistakes.h"

namespace stagecraft {

class ScopedMistake {
 public:
  explicit ScopedMistake(Mistake mistake) : bit_(internal::bit_of(mistake)) {
    internal::mistakes_made.fetch_or(bit_);
  }
  ~ScopedMistake() { internal::mistakes_made.fetch_and(~bit_); }
  ScopedMistake(const ScopedMistake&) = delete;
  ScopedMistake& operator=(const ScopedMistake&) = delete;

 private:
  uint32_t bit_;
};

}  // namespace stagecraft
