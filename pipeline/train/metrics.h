// What a run tells while it trains: a progress line for people, JSON lines for programs.
//
// Used by rank 0's thread.
#pragma once

#include <cstdint>
#include <string>

#include "partitioner/base/descriptor.h"
#include "partitioner/base/units.h"

namespace stagecraft {

struct StepMetrics {
  int64_t step = 0;          // 0-based
  double loss = 0;           // mean over the global batch
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  double seconds = 0;  // of this step, optimizer included
  int64_t samples = 0;
  Bytes fullest_rank;  // peak of the tracking allocator so far, fullest rank
};

// Appends one JSON object a line; every write is checked. Throws InputError(kIo) naming file and
// reason.
class MetricsFile {
 public:
  explicit MetricsFile(const std::string& path);
  void write(const StepMetrics& metrics);

 private:
  std::string path_;
  Descriptor descriptor_;
};

// Leaves the lines of steps before `step`, which are not done again; a line cut short by a crash
// goes. Does nothing when there is no file. Throws InputError(kIo).
void keep_metrics_before(const std::string& path, int64_t step);

// One line that rewrites itself on a terminal; plain lines elsewhere, at most one a second and
// always the last.
class ProgressLine {
 public:
  explicit ProgressLine(int64_t steps);
  void show(const StepMetrics& metrics);
  // Ends a rewritten line, so that what follows starts on its own.
  void finish();

 private:
  int64_t steps_;
  bool terminal_;
  bool open_ = false;
  double started_ = 0, last_shown_ = 0;
  int64_t first_step_ = -1;
};

}  // namespace stagecraft
