// Behind the units: single blocks of a split move to a neighbouring stage while that helps.
//
// Pure function, any thread.
#pragma once

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"
#include "partitioner/solver/step_search.h"

namespace stagecraft {

// The split with blocks moved, one by one or two at a time, each time the move that shortens the
// step most, or keeps it and leans the fullest rank; until none does, too much was simulated
// (many micro-batches), or the deadline of `limits` is over. It stays a valid placement within
// every device's memory, and what is fixed stays where it is. `chain` is left as it was: where the
// split came from. A split that does not fit is returned as it is.
Split refine(const StageTable& table, const SplitTarget& target, Split split,
             const SearchLimits& limits);

}  // namespace stagecraft
