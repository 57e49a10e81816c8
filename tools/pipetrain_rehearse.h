// The command line of `pipetrain --rehearse`: other flags than a training's, so a parser of its
// own.
#pragma once

#include <optional>

#include "pipeline/launch/rank_environment.h"

namespace stagecraft {

// Whether the arguments ask for a rehearsal.
bool wants_rehearsal(int argc, char** argv);

// The program's body then, for the process that a person starts and for its ranks. Returns the exit
// code or throws Error.
int rehearse(int argc, char** argv, std::optional<RankEnvironment>& environment);

}  // namespace stagecraft
