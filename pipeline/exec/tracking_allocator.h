// Counts every byte that LibTorch takes on the CPU, oneDNN's scratch included.
//
// One per process, installed before the first tensor; counters are atomic and may be read from any
// thread. Sizes are the requested ones, so that they can be held against sums of tensor bytes.
#pragma once

#include "partitioner/base/units.h"

namespace stagecraft {

class TrackingAllocator {
 public:
  // Makes it LibTorch's CPU allocator, and glibc keep freed memory for the process (the resident
  // size never falls). Idempotent. Call before any tensor exists.
  static void install();
  static Bytes current();
  // Highest since `reset_peak`.
  static Bytes peak();
  static void reset_peak();
  // A second high-water mark, for a short stretch inside: the executor's blocks.
  static Bytes mark();
  static void reset_mark();
};

}  // namespace stagecraft
