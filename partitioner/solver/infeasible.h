// Why no split fits, in numbers, and what would make it fit: tried out, not guessed.
#pragma once

#include <string>

#include "partitioner/solver/solver.h"
#include "partitioner/solver/split_problem.h"

namespace stagecraft {

// One line for a ResourceError. `target` is the one that has no split; `options` as the caller gave
// them.
std::string explain_infeasible(const BlockGraph& graph, const CostTable& costs,
                               const SplitProblem& problem, const SplitTarget& target,
                               const SolverOptions& options);

}  // namespace stagecraft
