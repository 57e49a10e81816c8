// Why no split fits, in numbers, and what would make it fit: tried out, not guessed.
#pragma once

#include <string>

#include "partitioner/solver/solver.h"
#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

// One line for a ResourceError. `target` is the one that has no split; `options` as the caller gave
// them.
std::string explain_infeasible(const StageTable& table, const SplitTarget& target,
                               const SolverOptions& options);

}  // namespace stagecraft
