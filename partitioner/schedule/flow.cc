#include "partitioner/schedule/flow.h"

#include <algorithm>

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

// One hop, or by way of the stages between that `is_on_the_way` names.
template <typename Filter>
void add_hops(int value, int from, int to, const Filter& is_on_the_way, std::vector<Hop>& hops) {
  const int direction = from < to ? 1 : -1;
  for (int s = from + direction; s != to + direction; s += direction) {
    if (s != to && !is_on_the_way(s)) continue;
    hops.push_back({value, from, s});
    from = s;
  }
}

void add_fold(const BlockGraph& graph, const Placement& placement, int value, Flow& flow) {
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
  const auto relays = [&](int stage) { return placement.relays && flow.has_backward[stage]; };
  for (size_t i = 1; i < path.size(); ++i)
    add_hops(value, path[i - 1], path[i], relays, flow.backward);
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
  for (size_t i = 0; i < read.size(); ++i) {
    const auto [v, s] = read[i];
    const int producer = graph.values[v].producer;
    if (producer < 0) continue;  // every rank reads or draws it for itself
    int from = placement.stage_of_block[producer];
    if (from < 0 || from == s) continue;
    // A relayed value goes on from the last stage that has it.
    if (placement.relays && i > 0 && read[i - 1].first == v)
      from = std::max(from, read[i - 1].second);
    add_hops(v, from, s, [&](int) { return placement.relays; }, flow.forward);
  }
  for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
    if (graph.values[v].carries_grad) add_fold(graph, placement, v, flow);
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
