#include "partitioner/schedule/flow.h"

#include "partitioner/base/error.h"
#include "partitioner/base/sorted.h"

namespace stagecraft {
namespace {

std::vector<std::vector<int>> needs_of(const std::vector<Hop>& hops, int stages) {
  std::vector<std::vector<int>> needs(stages);
  for (const Hop& hop : hops) needs[hop.to_stage].push_back(hop.from_stage);
  for (std::vector<int>& from : needs) sort_and_unique(from);
  return needs;
}

void add_fold(const BlockGraph& graph, const Placement& placement, int value,
              std::vector<Hop>& hops) {
  const std::vector<int> consumers = graph.gradient_consumers(value);
  if (consumers.empty()) return;  // the prediction itself: its gradient starts at the loss
  std::vector<int> path;          // stages the partial sum visits
  for (auto block = consumers.rbegin(); block != consumers.rend(); ++block) {
    const int stage = placement.stage_of_block[*block];
    check(stage >= 0, "a replicated block is asked for a gradient");
    if (path.empty() || path.back() != stage) path.push_back(stage);
  }
  const int producer = placement.stage_of_block[graph.values[value].producer];
  if (path.back() != producer) path.push_back(producer);
  for (size_t i = 1; i < path.size(); ++i) hops.push_back({value, path[i - 1], path[i]});
}

}  // namespace

Flow derive_flow(const BlockGraph& graph, const Placement& placement) {
  const int stages = placement.stages();
  Flow flow;
  flow.blocks = placement.blocks_by_stage(graph);
  flow.has_backward.resize(stages);
  std::vector<std::pair<int, int>> read;  // (value, stage)
  for (int s = 0; s < stages; ++s) {
    for (int b : flow.blocks[s]) {
      if (graph.blocks[b].state != BlockState::kF) flow.has_backward[s] = true;
      for (int v : graph.blocks[b].inputs) read.emplace_back(v, s);
    }
  }
  sort_and_unique(read);
  for (auto [v, s] : read) {
    const int producer = graph.values[v].producer;
    if (producer < 0) continue;  // every rank reads or draws it for itself
    const int from = placement.stage_of_block[producer];
    if (from >= 0 && from != s) flow.forward.push_back({v, from, s});
  }
  for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
    if (graph.values[v].carries_grad) add_fold(graph, placement, v, flow.backward);
  }
  if (graph.output >= 0)
    flow.loss_stage = placement.stage_of_block[graph.values[graph.output].producer];
  flow.forward_needs = needs_of(flow.forward, stages);
  flow.backward_needs = needs_of(flow.backward, stages);
  return flow;
}

std::vector<int> uses_on_rank(const BlockGraph& graph, const Placement& placement,
                              const Schedule& schedule, int rank) {
  std::vector<int> uses(graph.values.size());
  const std::vector<std::vector<int>> blocks = placement.blocks_by_stage(graph);
  for (int s = 0; s < placement.stages(); ++s) {
    if (placement.rank_of_stage[s] != rank) continue;
    for (int b : blocks[s]) {
      for (int v : graph.blocks[b].inputs) ++uses[v];
      if (graph.blocks[b].output == graph.output) ++uses[graph.output];  // the loss
    }
  }
  for (const Message& message : schedule.messages) {
    if (message.micro_batch != 0 || message.src_rank != rank) continue;
    if (message.direction != Direction::kForward) continue;
    for (const MessageItem& item : message.items) ++uses[item.value];
  }
  return uses;
}

}  // namespace stagecraft
