// Time that the calling thread has spent on a core: what a piece of work takes when nobody else
// wants the core. Any thread, each its own clock.
#pragma once

#include <time.h>

#include "partitioner/base/units.h"

namespace stagecraft {

inline Nanos thread_cpu_time() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return {int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec};
}

}  // namespace stagecraft
