// Times a schedule on a cluster: an event simulation of the very action lists that are executed.
//
// Pure function, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

// latency + bytes / bandwidth, to the nearest nanosecond. Throws InternalError for a link without
// bandwidth.
Nanos transfer_time(const Link& link, Bytes bytes);

struct TimedAction {
  int rank = 0;
  int index = 0;  // in the rank's list
  Nanos start, end;
};

struct SimulatedStep {
  Nanos makespan;
  std::vector<Nanos> busy;  // compute time per rank
  std::vector<TimedAction>
      actions;            // per rank in list order; messages take transfer time, not compute time
  double bubble() const;  // 1 - sum(busy) / (ranks * makespan)
};

// By the rules of simulate/step_clock.h. A message takes latency + bytes / bandwidth of
// `Cluster::between`; times of a smaller last micro-batch scale with its samples. Throws
// ConfigError when the table lacks a block, InternalError for a schedule that cannot run.
SimulatedStep simulate(const BlockGraph& graph, const Placement& placement,
                       const ClusterCosts& costs, const Cluster& cluster, const Schedule& schedule,
                       const std::vector<int64_t>& micro_batch_sizes);

}  // namespace stagecraft
