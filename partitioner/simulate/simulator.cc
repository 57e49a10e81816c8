#include "partitioner/simulate/simulator.h"

#include <cmath>

#include "partitioner/base/error.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/simulate/costs.h"
#include "partitioner/simulate/step_clock.h"

namespace stagecraft {
namespace {

struct StageParts {
  int64_t forward = 0, backward_input = 0, backward_weight = 0;
};

StageParts sum_parts(const BlockGraph& graph, const Placement& placement, const BlockCosts& costs,
                     const std::vector<int>& blocks) {
  StageParts sum;
  for (int b : blocks) {
    const BlockCost& cost = *costs[b];
    sum.forward += cost.forward.median.count;
    if (graph.blocks[b].state == BlockState::kF) continue;
    sum.backward_input += cost.backward_input.median.count;
    sum.backward_weight += cost.backward_weight.median.count;
    if (placement.recompute[b]) sum.backward_input += cost.forward.median.count;
  }
  return sum;
}

}  // namespace

Nanos transfer_time(const Link& link, Bytes bytes) {
  check(link.bandwidth > 0, "a link of the cluster has no bandwidth");
  return link.latency +
         Nanos{std::llround(1e9 * static_cast<double>(bytes.count) / link.bandwidth)};
}

double SimulatedStep::bubble() const {
  if (makespan.count == 0 || busy.empty()) return 0;
  double sum = 0;
  for (Nanos b : busy) sum += static_cast<double>(b.count);
  return 1 - sum / (static_cast<double>(busy.size()) * static_cast<double>(makespan.count));
}

SimulatedStep simulate(const BlockGraph& graph, const Placement& placement,
                       const ClusterCosts& costs, const Cluster& cluster, const Schedule& schedule,
                       const std::vector<int64_t>& micro_batch_sizes) {
  const Flow flow = derive_flow(graph, placement);
  const std::vector<BlockCosts> by_kind = block_costs_by_kind(graph, costs);
  std::vector<StageParts> parts;
  for (int s = 0; s < placement.stages(); ++s) {
    const int kind = costs.kind_of_rank(placement.rank_of_stage[s]);
    parts.push_back(sum_parts(graph, placement, by_kind[kind], flow.blocks[s]));
  }
  const auto duration = [&](const Action& action) -> int64_t {
    const StageParts& part = parts[action.stage];
    switch (action.kind) {
      case ActionKind::kForward:
        return part.forward;
      case ActionKind::kBackwardInput:
        return part.backward_input;
      case ActionKind::kBackwardWeight:
        return part.backward_weight;
      case ActionKind::kBackward:
        return part.backward_input + part.backward_weight;
      default:
        return 0;
    }
  };
  std::vector<int64_t> compute, transfer;
  for (const auto& actions : schedule.ranks)
    for (const Action& action : actions)
      compute.push_back(is_compute(action)
                            ? scale_to(duration(action), micro_batch_sizes[action.micro_batch],
                                       costs.micro_batch())
                            : 0);
  for (const Message& message : schedule.messages)
    transfer.push_back(
        transfer_time(cluster.between(message.src_rank, message.dst_rank), message.bytes).count);
  StepClock::Times times;
  StepClock(flow, placement, schedule).run(compute, transfer, times);

  SimulatedStep step{.makespan = Nanos{times.makespan}, .busy = {}, .actions = {}};
  for (int64_t busy : times.busy) step.busy.push_back(Nanos{busy});
  for (int r = 0; r < static_cast<int>(schedule.ranks.size()); ++r)
    for (int i = 0; i < static_cast<int>(schedule.ranks[r].size()); ++i) {
      const size_t number = step.actions.size();
      step.actions.push_back({.rank = r,
                              .index = i,
                              .start = Nanos{times.start[number]},
                              .end = Nanos{times.end[number]}});
    }
  return step;
}

}  // namespace stagecraft
