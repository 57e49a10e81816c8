// From a placement to a plan with its predictions.
//
// Pure functions, any thread.
#pragma once

#include "partitioner/plan/plan.h"

namespace stagecraft {

// A plan without predictions. The part of `train` that a plan does not depend on is left out.
Plan make_plan(const TrainConfig& train, const BlockGraph& graph, const Placement& placement,
               const std::string& schedule);

// Fills what is informative and follows from the plan: time and memory of every rank, the same on
// one device alone and under data parallel, the bubble with more micro-batches, the message table.
// Not what a search finds beside it: `front`, `alternatives`. `costs` must be made for the graph
// (check_cost_table) and for every rank of the cluster, which needs a device for every rank of the
// plan, else ConfigError (4).
void predict(Plan& plan, const BlockGraph& graph, const ResolvedPlan& resolved,
             const ClusterCosts& costs, const Cluster& cluster);

}  // namespace stagecraft
