// The cost table without running anything: operations counted from shapes and dtypes, timed by a
// roofline.
//
// Every number can be checked by hand with docs/cost-model.md. Pure function, any thread.
#pragma once

#include <string>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/cost_table.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// Costs of one micro-batch of `micro_batch` samples on `device`. An operation takes
//   max(flops / (peak * efficiency), bytes / (bandwidth * efficiency)) + launches * op_latency
// (roofline: Williams et al. 2009), peak and efficiency by the kind of operation and `precision`
// ("fp32", "fp16", "bf16"). The gradient work of a block is split into backward_input and
// backward_weight by what is computed: a block whose inputs carry no gradient has all of it in
// backward_weight. A block without a path to the loss costs nothing but its parameters. Throws
// ConfigError for an unknown precision, a device that lacks the rate for it or a micro-batch
// below 1.
CostTable analytic_cost_table(const BlockGraph& graph, const Device& device,
                              const std::string& precision, int64_t micro_batch);

// One such table for each kind of device of `cluster`.
ClusterCosts analytic_cluster_costs(const BlockGraph& graph, const Cluster& cluster,
                                    const std::string& precision, int64_t micro_batch);

}  // namespace stagecraft
