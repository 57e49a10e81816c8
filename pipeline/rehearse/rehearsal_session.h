// A whole rehearsal: what `pipetrain --rehearse` does after it read its command line.
#pragma once

#include <string>
#include <vector>

#include "partitioner/base/error.h"
#include "pipeline/launch/rank_environment.h"
#include "pipeline/rehearse/rehearsal.h"

namespace stagecraft {

// In the process that a person starts. Checks the files and the machine's memory, starts the ranks.
// `command` is this program with its arguments, for the ranks. Returns kOk; on failure of a rank
// the one-line reason is thrown as Error with its code.
ExitCode run_rehearsal(const RehearsalOptions& options, const std::vector<std::string>& command);

// In a rank. Does not throw: what went wrong is in the page.
ExitCode run_rehearsed_rank(const RehearsalOptions& options, RankEnvironment& environment);

}  // namespace stagecraft
