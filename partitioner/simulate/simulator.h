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

// start(action) = max(end of the rank's previous action, arrival of what it needs); a message
// starts when both sides have reached it and the one before it on its directed pair is through,
// takes latency + bytes / bandwidth of `Cluster::between`, and overlaps compute. An S waits while
// kSendsInFlight sends are under way, the step for all of them; the step itself takes no time.
// Times of a smaller last micro-batch scale with its samples. Throws ConfigError when the table
// lacks a block, InternalError for a schedule that cannot run.
SimulatedStep simulate(const BlockGraph& graph, const Placement& placement,
                       const ClusterCosts& costs, const Cluster& cluster, const Schedule& schedule,
                       const std::vector<int64_t>& micro_batch_sizes);

}  // namespace stagecraft
