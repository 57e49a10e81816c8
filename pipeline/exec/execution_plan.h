// What all ranks agree on before step 0.
#pragma once

#include <cstdint>
#include <vector>

#include "models/config/model_config.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

// Referenced, not copied: what it names outlives whoever holds one.
struct ExecutionPlan {
  const BlockGraph& graph;
  const Placement& placement;
  const Schedule& schedule;
  const std::vector<int64_t>& micro_batch_sizes;  // samples
  const ModelConfig& model;
  uint64_t seed = 0;
};

}  // namespace stagecraft
