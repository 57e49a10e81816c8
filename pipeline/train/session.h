// A whole run: checks, cache, ranks, report. What `pipetrain` does after it read its command line.
#pragma once

#include <string>
#include <vector>

#include "partitioner/base/error.h"
#include "partitioner/graph/placement.h"
#include "pipeline/train/train_options.h"

namespace stagecraft {

// In the process that a person starts. Checks plan, weights and output folder; starts one process
// that checks the data and fills the cache, then the ranks; prints the report. `command` is this
// program with its arguments, for the children. Returns the exit code; on failure of a rank the
// one-line reason is thrown as Error with that code.
ExitCode run_session(const TrainOptions& options, const std::vector<std::string>& command);

// By rank: "stage 2", "stage 0, 2".
std::vector<std::string> stage_labels(const Placement& placement);

}  // namespace stagecraft
