#include "partitioner/plan/make_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {
namespace {

constexpr int64_t kGradientBytes = 4;

// Everything on one stage of the device with the most memory.
PlannedRank predict_one_device(const BlockGraph& graph, const CostTable& costs,
                               const Cluster& cluster,
                               const std::vector<int64_t>& micro_batch_sizes) {
  const Device& device = *std::ranges::max_element(
      cluster.devices, {}, [](const Device& candidate) { return candidate.memory; });
  const Cluster alone{.name = device.name, .devices = {device}, .link = cluster.link};
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

// Every device takes an equal part of the batch; then the gradients go around a ring, each element
// 2 (n - 1) / n times (Patarasuk and Yuan, 2009). Overlap with the backward pass is left out.
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
    nanos += bytes / cluster.link.bandwidth * 1e9;
  }
  return {static_cast<int64_t>(nanos)};
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
             const CostTable& costs, const Cluster& cluster) {
  const auto ranks = static_cast<size_t>(resolved.placement.ranks());
  if (ranks > cluster.devices.size()) {
    throw ConfigError(fmt::format("the plan uses {} ranks, cluster {} has {} devices", ranks,
                                  cluster.name, cluster.devices.size()),
                      ExitCode::kPlanMismatch);
  }
  Cluster used = cluster;
  used.devices.resize(ranks);
  const auto memory = predict_memory(graph, resolved.placement, costs, used.devices,
                                     resolved.schedule, resolved.micro_batch_sizes);
  const SimulatedStep step = simulate(graph, resolved.placement, costs, used, resolved.schedule,
                                      resolved.micro_batch_sizes);
  plan.cluster = cluster.name;
  plan.cost_table = fmt::format("{}, {}", costs.made_by, costs.machine);
  plan.predicted_step = step.makespan;
  plan.predicted_bubble = std::clamp(step.bubble(), 0.0, 1.0);
  plan.ranks.clear();
  for (size_t r = 0; r < ranks; ++r) {
    plan.ranks.push_back({.device = used.devices[r].name,
                          .device_memory = used.devices[r].memory,
                          .busy = step.busy[r],
                          .memory = memory[r]});
  }
  plan.one_device = predict_one_device(graph, costs, cluster, resolved.micro_batch_sizes);
  plan.data_parallel_step =
      data_parallel_step(graph, plan.one_device.busy, plan.train.batch, cluster);
  // A ring has two neighbours, each with a direction of its own.
  const Device& largest = *std::ranges::max_element(cluster.devices, {}, &Device::memory);
  plan.data_parallel_buffers =
      cluster.devices.size() > 1 ? largest.comm_buffer_per_peer * 2 * 2 : Bytes{};
  plan.messages = transfers_of_micro_batch(graph, resolved.placement, plan.train.micro_batch);
}

}  // namespace stagecraft
