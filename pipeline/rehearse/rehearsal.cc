#include "pipeline/rehearse/rehearsal.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "models/network/build.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/cost/analytic.h"
#include "pipeline/train/resources.h"

namespace stagecraft {
namespace {

constexpr MemoryLine kStaticLines[] = {MemoryLine::kWeights, MemoryLine::kGradients,
                                       MemoryLine::kMasterWeights, MemoryLine::kOptimizer};

template <typename Quantity>
Quantity scale_by(Quantity quantity, double factor) {
  return {std::llround(static_cast<double>(quantity.count) * factor)};
}

ClusterCosts costs_of(const RehearsalOptions& options, const Plan& plan, const BlockGraph& graph,
                      const Cluster& cluster) {
  const TrainConfig& train = plan.train;
  if (options.cost_table.empty()) {
    return analytic_cluster_costs(graph, cluster, train.precision, train.micro_batch);
  }
  for (const int kind : cluster.kinds()) {
    if (kind == 0) continue;
    throw Error(ExitCode::kUsage,
                fmt::format("--cost-table has the costs of one kind of device, cluster {} has "
                            "several; leave it out to count for each",
                            cluster.name));
  }
  CostTable table = read_cost_table(options.cost_table);
  check_cost_table(table, graph,
                   {.device = cluster.devices.front().name,
                    .precision = train.precision,
                    .micro_batch = train.micro_batch});
  return ClusterCosts(std::move(table));
}

std::vector<RankMemory> planned_memory(const BlockGraph& graph, const ResolvedPlan& resolved,
                                       const ClusterCosts& costs, const Cluster& cluster,
                                       double scale) {
  auto memory = predict_memory(graph, resolved.placement, costs, cluster.devices, resolved.schedule,
                               resolved.micro_batch_sizes);
  for (RankMemory& rank : memory) {
    for (const MemoryLine line : kStaticLines) rank[line] = scale_by(rank[line], scale);
  }
  return memory;
}

// What all ranks take of this machine: each is a process like this one.
Bytes taken_by(const std::vector<RankMemory>& ranks) {
  Bytes sum;
  for (const RankMemory& rank : ranks) sum += held_bytes(rank) + resident_now().total();
  return sum;
}

}  // namespace

Rehearsal load_rehearsal(const RehearsalOptions& options) {
  Plan plan = read_plan(options.plan);
  const TrainConfig& train = plan.train;
  ModelConfig model = read_model_config(train.model);
  BlockGraph graph =
      build_training_graph(model, train.width, train.height, train.trainable, train.precision);
  ResolvedPlan resolved = resolve_plan(plan, graph, options.plan);
  Cluster cluster = read_cluster(options.cluster);
  const int ranks = resolved.placement.ranks();
  if (static_cast<size_t>(ranks) > cluster.devices.size()) {
    throw ConfigError(fmt::format("the plan uses {} ranks, cluster {} has {} devices", ranks,
                                  cluster.name, cluster.devices.size()),
                      ExitCode::kPlanMismatch);
  }
  const ClusterCosts unscaled = costs_of(options, plan, graph, cluster);
  const CostTable& first = unscaled.of_rank(0);
  std::string block_times = options.cost_table.empty()
                                ? fmt::format("analytic for {}", first.device)
                                : fmt::format("{}, {}", options.cost_table, first.machine);
  ClusterCosts costs = scaled_costs(unscaled, ranks, options.scale, options.scale_memory);
  SimulatedStep planned = simulate(graph, resolved.placement, costs, cluster, resolved.schedule,
                                   resolved.micro_batch_sizes);
  auto memory = planned_memory(graph, resolved, costs, cluster, options.scale_memory);
  return {.options = options,
          .model = std::move(model),
          .plan = std::move(plan),
          .graph = std::move(graph),
          .resolved = std::move(resolved),
          .cluster = std::move(cluster),
          .costs = std::move(costs),
          .block_times = std::move(block_times),
          .planned = std::move(planned),
          .memory = std::move(memory)};
}

Bytes held_bytes(const RankMemory& memory) {
  return memory.without_base() - memory[MemoryLine::kCommBuffers] - memory[MemoryLine::kSlack];
}

Bytes static_bytes(const RankMemory& memory) {
  Bytes sum;
  for (const MemoryLine line : kStaticLines) sum += memory[line];
  return sum;
}

void require_room(const Rehearsal& rehearsal, Bytes available) {
  // The rest is for what is not counted: heaps' gaps, sockets, others on the machine.
  constexpr double kShare = 0.9;
  const Bytes free = scale_by(available, kShare);
  const Bytes wanted = taken_by(rehearsal.memory);
  if (wanted <= free) return;
  const RehearsalOptions& options = rehearsal.options;
  const ClusterCosts unscaled =
      costs_of(options, rehearsal.plan, rehearsal.graph, rehearsal.cluster);
  const auto fits = [&](double scale) {
    const ClusterCosts costs = scaled_costs(unscaled, rehearsal.ranks(), options.scale, scale);
    return taken_by(planned_memory(rehearsal.graph, rehearsal.resolved, costs, rehearsal.cluster,
                                   scale)) <= free;
  };
  const std::string refusal =
      fmt::format("--rehearse {}: its ranks take {} together, this machine has {} to spare",
                  options.plan, mib_text(wanted), mib_text(free));
  for (const double scale : {0.5, 0.2, 0.1, 0.05, 0.02, 0.01}) {
    if (scale < options.scale_memory && fits(scale)) {
      throw ResourceError(fmt::format(
          "{}; hold a part of it with --scale-memory {}, or nothing with 0", refusal, scale));
    }
  }
  throw ResourceError(
      options.scale_memory > 0 && fits(0)
          ? fmt::format("{}; blocks hold nothing with --scale-memory 0", refusal)
          : fmt::format("{}, and messages alone are too much; plan with a smaller micro-batch",
                        refusal));
}

ClusterCosts scaled_costs(const ClusterCosts& costs, int ranks, double time, double memory) {
  std::vector<CostTable> tables;
  for (int kind = 0; kind < costs.kinds(); ++kind) {
    CostTable& table = tables.emplace_back(costs.of_kind(kind));
    for (auto& [name, cost] : table.blocks) {
      for (Timing* timing : {&cost.forward, &cost.backward_input, &cost.backward_weight}) {
        timing->median = scale_by(timing->median, time);
      }
      for (Bytes* bytes :
           {&cost.saved_internal, &cost.workspace_forward, &cost.workspace_backward}) {
        *bytes = scale_by(*bytes, memory);
      }
      if (memory > 0) continue;
      cost.keeps_input.assign(cost.keeps_input.size(), false);
      cost.keeps_output = false;
    }
  }
  std::vector<int> kinds;
  for (int rank = 0; rank < ranks; ++rank) kinds.push_back(costs.kind_of_rank(rank));
  return ClusterCosts(std::move(tables), std::move(kinds));
}

}  // namespace stagecraft
