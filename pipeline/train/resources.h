// What the operating system says about this process. Any thread.
#pragma once

#include "partitioner/base/units.h"

namespace stagecraft {

Bytes resident_bytes();        // now
Bytes peak_resident_bytes();   // highest so far
double process_cpu_seconds();  // of all threads, so far

}  // namespace stagecraft
