// The known ways to cut a sequence of weights into consecutive parts, as their own programs do it.
//
// They look at one number an item and at nothing else: no memory cap, no schedule, no link. Pure
// functions, any thread. All throw InternalError for fewer items than parts, or no part.
#pragma once

#include <cstdint>
#include <vector>

namespace stagecraft {

// Part i holds items cuts[i] .. cuts[i + 1] - 1: the first cut is 0, the last the number of items,
// and no part is empty.
using Cuts = std::vector<int>;

// Equally many items, one more in the first parts where they do not divide. DeepSpeed's `uniform`
// (deepspeed/runtime/utils.py, partition_uniform).
Cuts uniform_cuts(int items, int parts);

// DeepSpeed's balanced parts, behind its `parameters` (deepspeed/runtime/utils.py,
// partition_balanced): a table over (items, parts) that keeps for each entry the one split with the
// smallest *difference between largest and smallest part*, the last found among equals. The largest
// part alone, which sets the pace of a pipeline, is not what it minimises; and since an entry keeps
// one split, the difference is not always the least either.
Cuts least_spread_cuts(const std::vector<int64_t>& weights, int parts);

// torchgpipe's (torchgpipe/balance/blockpartition.py): Bárány and Grinberg, "Block partitions of
// sequences" (Israel Journal of Mathematics, 2015). Weights are shifted so that the smallest is 0;
// items move one by one from a neighbour into the smallest part until no two parts differ by more
// than the largest weight. That is all it promises.
Cuts block_partition_cuts(const std::vector<int64_t>& weights, int parts);

// The smallest possible largest part: the linear partition problem (Skiena, The Algorithm Design
// Manual), solved exactly. Among equals the first parts are as short as they can be.
Cuts min_max_cuts(const std::vector<int64_t>& weights, int parts);

}  // namespace stagecraft
