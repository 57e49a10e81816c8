#include "pipeline/train/resources.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <fstream>

namespace stagecraft {

Resident resident_now() {
  std::ifstream statm("/proc/self/statm");
  int64_t all = 0, resident = 0, shared = 0;  // proc(5): "shared" are the pages backed by files
  statm >> all >> resident >> shared;
  const int64_t page = sysconf(_SC_PAGESIZE);
  return {.files = {shared * page}, .heap = {(resident - shared) * page}};
}

Bytes peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_maxrss * 1024};
}

double process_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace stagecraft
