// measured.json: what a run used, rank by rank, beside what the plan predicted. The trainer writes
// it, the report reads it.
//
// Plain values, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/simulate/memory_model.h"

namespace stagecraft {

// Lines that a CPU rank can tell apart. Not: buffers of the transport, which lie in the kernel;
// slack, an allowance of the plan.
bool is_measured(MemoryLine line);

struct MeasuredRank {
  RankMemory memory;     // at the moment of the rank's peak, as the tracking allocator counted it;
                         // lines that are not measured stay 0
  Bytes peak_allocator;  // the allocator's peak: equals memory.without_base()
  Bytes peak_rss, base_rss;  // resident size: highest, and before anything of the model was loaded
  // What the resident size grew by since then, until the end of training: pages of files (code and
  // tables of libraries, read in on first use) and others (tensors, what the heap keeps for later).
  Bytes grown_files, grown_heap;
  double busy_seconds = 0;      // in blocks, mean of a step
  double busy_cpu_seconds = 0;  // of it: the rank's thread on a core; the rest waits for one
  double step_seconds = 0;      // wall time, mean of a step
  double cpu_seconds = 0;       // processor time of all threads, mean of a step
  bool operator==(const MeasuredRank&) const = default;
};

struct Measured {
  std::string plan_hash;
  std::string machine;  // where, with how many threads, versions
  int64_t steps = 0;    // averaged over; the first one is left out when there are others
  std::vector<MeasuredRank> ranks;
  bool operator==(const Measured&) const = default;
};

// JSON, one rank a line, without the lines that are not measured. `read_measured` throws InputError
// (kIo, or kDataInvalid naming file and key).
std::string to_json(const Measured& measured);
void write_measured(const Measured& measured, const std::string& path);
Measured read_measured(const std::string& path);

}  // namespace stagecraft
