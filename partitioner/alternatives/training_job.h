// What is trained, and on what: the arguments that every alternative needs.
//
// Refers to values that must outlive it; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

struct TrainingJob {
  const BlockGraph& graph;
  const ClusterCosts& costs;  // for every rank of `cluster`
  const Cluster& cluster;
  int64_t batch = 4, micro_batch = 1;

  int devices() const { return static_cast<int>(cluster.devices.size()); }
  // Samples of the fullest of `parts` equal parts of the batch.
  int64_t share(int parts) const { return (batch + parts - 1) / parts; }
};

}  // namespace stagecraft
