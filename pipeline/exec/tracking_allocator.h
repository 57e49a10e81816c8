// Counts every byte that LibTorch takes on the CPU, oneDNN's scratch included.
//
// One per process, installed before the first tensor; counters are atomic and may be read from any thread. Sizes are the
// requested ones, so that they can be held against sums of tensor bytes.
#pragma once

#include "partitioner/base/units.h"

namespace stagecraft {

class TrackingAllocator {
 public:
  // Makes it LibTorch's CPU allocator. Idempotent. Call before any tensor exists.
  static void install();
  static Bytes current();
  static Bytes peak();       // since the last `reset_peak`
  static void reset_peak();  // peak = current
};

}  // namespace stagecraft
