// From the options of `solve` to what is searched for, and from a split to a solution.
#pragma once

#include "partitioner/solver/solver.h"
#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

// Throws ConfigError for options that make no sense.
SplitTarget target_of(const StageTable& table, const Cluster& cluster,
                      const SolverOptions& options);
// `search_transfers`, and where it ended without a split the leanest one when that fits.
SearchResult find_split(const StageTable& table, const SplitTarget& target,
                        const SearchLimits& limits);
// The split refined behind its units until `limits` are over. `bound`: ns, see
// Solution::proven_bound.
Solution solution_of(const StageTable& table, const SplitTarget& target, Split split, int64_t bound,
                     const SearchLimits& limits);

}  // namespace stagecraft
