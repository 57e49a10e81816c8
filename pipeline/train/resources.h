// What the operating system says about this process. Any thread.
#pragma once

#include "partitioner/base/units.h"

namespace stagecraft {

// Resident size now: pages of files (libraries), and all others (heap, stacks, shared memory).
struct Resident {
  Bytes files, heap;
  Bytes total() const { return files + heap; }
};
Resident resident_now();
Bytes peak_resident_bytes();   // highest so far
double process_cpu_seconds();  // of all threads, so far

}  // namespace stagecraft
