// The split whose fullest device, measured against its memory, is least full: fits or not. What an
// infeasible problem is explained with.
//
// Pure function, deterministic, any thread.
#pragma once

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

struct Leanest {
  Split split;
  bool is_proven = false;  // no split over units needs less
};
// Stage s on rank s, values sent straight or relayed (`target.relays` does not count). Needs at
// least as many units as stages.
Leanest leanest_split(const StageTable& table, const SplitTarget& target);

}  // namespace stagecraft
