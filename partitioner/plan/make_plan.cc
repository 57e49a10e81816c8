#include "partitioner/plan/make_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "partitioner/base/error.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {
namespace {

constexpr int64_t kGradientBytes = 4;

// Everything on one stage of one rank's device.
PlannedRank predict_one_device(const BlockGraph& graph, const ClusterCosts& all_costs,
                               const Cluster& cluster, int rank,
                               const std::vector<int64_t>& micro_batch_sizes) {
  const Cluster alone = cluster.select({rank});
  const ClusterCosts costs = all_costs.select({rank});
  const Device& device = alone.devices.front();
  Placement placement;
  placement.stage_of_block.assign(graph.blocks.size(), 0);
  placement.rank_of_stage = {0};
  placement.recompute.assign(graph.blocks.size(), false);
  const auto order =
      generate_order("1f1b", graph, placement, static_cast<int>(micro_batch_sizes.size()));
  const Schedule schedule = insert_messages(graph, placement, order, micro_batch_sizes);
  const auto memory =
      predict_memory(graph, placement, costs, alone.devices, schedule, micro_batch_sizes);
  const SimulatedStep step = simulate(graph, placement, costs, alone, schedule, micro_batch_sizes);
  return {.device = device.name,
          .device_memory = device.memory,
          .busy = step.makespan,
          .memory = memory.at(0)};
}

// Bytes a second of the slowest link of the ring over all ranks.
double ring_bandwidth(const Cluster& cluster) {
  const int ranks = static_cast<int>(cluster.devices.size());
  double slowest = std::numeric_limits<double>::infinity();
  for (int r = 0; r < ranks; ++r) {
    slowest = std::min(slowest, cluster.between(r, (r + 1) % ranks).bandwidth);
  }
  return slowest;
}

// Every device takes an equal part of the batch, of which the slowest decides; then the gradients
// go around a ring, each element 2 (n - 1) / n times (Patarasuk and Yuan, 2009). Overlap with the
// backward pass is left out.
Nanos data_parallel_step(const BlockGraph& graph, Nanos one_device, int64_t batch,
                         const Cluster& cluster) {
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  const int64_t share = (batch + devices - 1) / devices;
  double nanos = static_cast<double>(one_device.count) * static_cast<double>(share) /
                 static_cast<double>(batch);
  int64_t trained = 0;
  for (const Block& block : graph.blocks) {
    if (block.trainable && block.reaches_loss) trained += block.parameters();
  }
  if (devices > 1) {
    const double bytes = 2.0 * static_cast<double>(devices - 1) / static_cast<double>(devices) *
                         static_cast<double>(trained * kGradientBytes);
    nanos += bytes / ring_bandwidth(cluster) * 1e9;
  }
  return {static_cast<int64_t>(nanos)};
}

// The whole batch on one device of the slowest kind.
Nanos slowest_alone(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
                    const std::vector<int64_t>& micro_batch_sizes) {
  std::vector<bool> seen(static_cast<size_t>(costs.kinds()), false);
  Nanos slowest;
  for (int r = 0; r < static_cast<int>(cluster.devices.size()); ++r) {
    const auto kind = static_cast<size_t>(costs.kind_of_rank(r));
    if (seen[kind]) continue;
    seen[kind] = true;
    slowest =
        std::max(slowest, predict_one_device(graph, costs, cluster, r, micro_batch_sizes).busy);
  }
  return slowest;
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
    plan.ranks.push_back({.device = cluster.devices[r].name,
                          .device_memory = cluster.devices[r].memory,
                          .busy = step.busy[r],
                          .memory = memory[r]});
  }
  const Device& largest = *std::ranges::max_element(cluster.devices, {}, &Device::memory);
  plan.one_device =
      predict_one_device(graph, costs, cluster, static_cast<int>(&largest - &cluster.devices[0]),
                         resolved.micro_batch_sizes);
  plan.data_parallel_step =
      data_parallel_step(graph, slowest_alone(graph, costs, cluster, resolved.micro_batch_sizes),
                         plan.train.batch, cluster);
  // A ring has two neighbours, each with a direction of its own.
  plan.data_parallel_buffers =
      cluster.devices.size() > 1 ? largest.comm_buffer_per_peer * 2 * 2 : Bytes{};
  plan.messages = transfers_of_micro_batch(graph, resolved.placement, plan.train.micro_batch);
}

}  // namespace stagecraft
