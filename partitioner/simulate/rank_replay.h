// Walks through one rank's list with the executor's rules for what is allocated and freed when.
//
// docs/memory-model.md states the rules; pipeline/exec follows the same. Pure function, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/cost/cost_table.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {

struct DynamicMemory {
  Bytes activations, recompute, boundary, workspace;
  Bytes total() const { return activations + recompute + boundary + workspace; }
  bool operator==(const DynamicMemory&) const = default;
};

struct ReplayInput {
  const BlockGraph& graph;
  const Placement& placement;
  const CostTable& table;
  const BlockCosts& costs;  // of `table`
  const Flow& flow;
  const Schedule& schedule;
  const std::vector<int64_t>& micro_batch_sizes;
};

// What the rank holds besides its parameters, at the moment when that is most. Throws InternalError
// for a schedule that the verifier would refuse.
DynamicMemory replay_rank(const ReplayInput& input, int rank);

}  // namespace stagecraft
