// What a plan says beside what is run.
#include "models/network/other_parameters.h"
#include "partition_commands.h"
#include "partitioner/alternatives/alternatives.h"
#include "partitioner/plan/make_plan.h"

namespace stagecraft {

void predict_with_alternatives(Plan& plan, const PartitionJob& job, const ResolvedPlan& resolved,
                               const ClusterCosts& costs, const Cluster& cluster,
                               const SearchLimits& limits) {
  predict(plan, job.graph, resolved, costs, cluster);
  plan.alternatives = find_alternatives(
      {.graph = job.graph,
       .costs = costs,
       .cluster = cluster,
       .batch = plan.train.batch,
       .micro_batch = plan.train.micro_batch},
      other_parameters(job.model), plan.schedule == "explicit" ? "1f1b" : plan.schedule, limits);
}

}  // namespace stagecraft
