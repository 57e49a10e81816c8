// How much memory this machine, or the container around this process, has to spare.
#pragma once

#include <string>

#include "partitioner/base/units.h"

namespace stagecraft {

// What may be taken without swapping: the kernel's MemAvailable, and no more than what is left of
// the limit of any memory cgroup (v1 or v2) that the process is in, page cache not counted as
// used. Any thread. `root`: where proc and sys are, for tests. Throws InputError(kIo) when the
// kernel does not say.
Bytes available_memory(const std::string& root = "");

}  // namespace stagecraft
