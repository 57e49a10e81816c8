#include "partitioner/plan/make_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/alternatives/data_parallel.h"
#include "partitioner/alternatives/one_device.h"
#include "partitioner/base/error.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {
namespace {

PlannedRank planned_rank(const Device& device, const RankMemory& memory, Nanos busy) {
  return {.device = device.name, .device_memory = device.memory, .busy = busy, .memory = memory};
}

// Nothing for an order that was given by hand.
MoreMicroBatches with_more_micro_batches(const Plan& plan, const BlockGraph& graph,
                                         const Placement& placement, const ClusterCosts& costs,
                                         const Cluster& cluster) {
  if (plan.schedule == "explicit") return {};
  const bool halved = plan.train.micro_batch > 1;
  MoreMicroBatches more{.batch = halved ? plan.train.batch : 2 * plan.train.batch,
                        .micro_batch = (plan.train.micro_batch + 1) / 2};
  const auto sizes = micro_batch_sizes(more.batch, more.micro_batch);
  const Schedule schedule = make_schedule(plan.schedule, graph, placement, sizes);
  const SimulatedStep step = simulate(graph, placement, costs, cluster, schedule, sizes);
  more.bubble = std::clamp(step.bubble(), 0.0, 1.0);
  return more;
}

std::string source_of(const ClusterCosts& costs) {
  std::string text;
  for (int k = 0; k < costs.kinds(); ++k) {
    const CostTable& table = costs.of_kind(k);
    text += fmt::format("{}{}, {}", k == 0 ? "" : "; ", table.made_by, table.machine);
  }
  return text;
}

}  // namespace

Plan make_plan(const TrainConfig& train, const BlockGraph& graph, const Placement& placement,
               const std::string& schedule) {
  Plan plan;
  plan.train.model = train.model;
  plan.train.width = train.width;
  plan.train.height = train.height;
  plan.train.precision = train.precision;
  plan.train.batch = train.batch;
  plan.train.micro_batch = train.micro_batch;
  plan.train.trainable = train.trainable;
  plan.graph_hash = graph_hash(graph);
  plan.schedule = schedule;
  plan.relays = placement.relays;
  for (const int rank : placement.rank_of_stage) {
    plan.stages.push_back({.rank = rank, .blocks = {}});
  }
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const int stage = placement.stage_of_block[b];
    const std::string& name = graph.blocks[b].name;
    (stage < 0 ? plan.replicated : plan.stages[static_cast<size_t>(stage)].blocks).push_back(name);
    if (placement.recompute[b]) plan.recompute.push_back(name);
  }
  return plan;
}

void predict(Plan& plan, const BlockGraph& graph, const ResolvedPlan& resolved,
             const ClusterCosts& costs, const Cluster& cluster) {
  const auto ranks = static_cast<size_t>(resolved.placement.ranks());
  if (ranks > cluster.devices.size()) {
    throw ConfigError(fmt::format("the plan uses {} ranks, cluster {} has {} devices", ranks,
                                  cluster.name, cluster.devices.size()),
                      ExitCode::kPlanMismatch);
  }
  const auto memory = predict_memory(graph, resolved.placement, costs, cluster.devices,
                                     resolved.schedule, resolved.micro_batch_sizes);
  const SimulatedStep step = simulate(graph, resolved.placement, costs, cluster, resolved.schedule,
                                      resolved.micro_batch_sizes);
  plan.cluster = cluster.name;
  plan.cost_table = source_of(costs);
  plan.predicted_step = step.makespan;
  plan.predicted_bubble = std::clamp(step.bubble(), 0.0, 1.0);
  plan.ranks.clear();
  for (size_t r = 0; r < ranks; ++r) {
    plan.ranks.push_back(planned_rank(cluster.devices[r], memory[r], step.busy[r]));
  }
  const TrainingJob job{.graph = graph,
                        .costs = costs,
                        .cluster = cluster,
                        .batch = plan.train.batch,
                        .micro_batch = plan.train.micro_batch};
  const int largest = largest_device(cluster);
  const OneDevice one = on_one_device(job, largest, job.batch);
  plan.one_device = planned_rank(cluster.devices[largest], one.memory, one.step.makespan);
  const DataParallel all = data_parallel(job);
  plan.data_parallel = planned_rank(cluster.devices[all.rank], all.memory, all.step);
  plan.more = with_more_micro_batches(plan, graph, resolved.placement, costs, cluster);
  plan.messages = transfers_of_micro_batch(graph, resolved.placement, plan.train.micro_batch);
}

}  // namespace stagecraft
