// The processes that a run consists of, beside the one that a person started: one encoder, then the
// ranks.
#pragma once

#include <functional>

#include "pipeline/launch/rank_environment.h"
#include "pipeline/train/rank_loop.h"
#include "pipeline/train/train_options.h"

namespace stagecraft {

// Tells a child what it is; set by the launcher's caller.
inline constexpr char kRoleVariable[] = "STAGECRAFT_ROLE";
// The checkpoint to go on from, or empty; set likewise, so that all ranks take the same.
inline constexpr char kCheckpointVariable[] = "STAGECRAFT_CHECKPOINT";
inline constexpr char kEncoderRole[] = "encoder";
inline constexpr char kRankRole[] = "rank";

// Where the encoder leaves the path of the cache's manifest for the ranks.
std::string manifest_note(const TrainOptions& options);

// Runs this process's role to its end and returns its exit code. Does not throw: what went wrong is
// in the page, from where the launcher takes it.
ExitCode run_child(const TrainOptions& options, RankEnvironment& environment);

// How any child runs: SIGTERM asks it to stop, SIGUSR1 to save; what `body` throws goes to the
// page, and the exit code is returned. Once in a process.
ExitCode run_as_child(RankEnvironment& environment,
                      const std::function<LoopEnd(RankRequests&)>& body);

}  // namespace stagecraft
