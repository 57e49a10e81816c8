// The loop of one rank of a rehearsal, from the handshake to the figures.
#pragma once

#include "pipeline/rehearse/rehearsal.h"
#include "pipeline/train/rank_loop.h"

namespace stagecraft {

// Collective over all ranks. Rank 0 prints the figures (one JSON object with `options.json`) and
// writes what files are asked for. Installs the tracking allocator. kStopped: told to stop before
// the last step, nothing printed. Throws ConfigError (4) from the handshake, CommError,
// InputError (kIo).
LoopEnd rehearse_rank(const Rehearsal& rehearsal, const RankSurroundings& around);

}  // namespace stagecraft
