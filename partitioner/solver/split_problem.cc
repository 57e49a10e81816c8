#include "partitioner/solver/split_problem.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxDownSets = 3000;  // 4.5 million possible stages
constexpr int kMaxVisits = 20'000;      // chains looked at, most of them refused by their bound
constexpr int kMarginSteps = 40;
constexpr int64_t kMiB = 1024 * 1024;

}  // namespace

int64_t Split::excess(const SplitTarget& target) const {
  int64_t worst = std::numeric_limits<int64_t>::min();
  for (size_t r = 0; r < memory.size(); ++r)
    worst = std::max(worst, memory[r].total().count - target.devices[r].memory.count);
  return worst;
}

SplitProblem::SplitProblem(const BlockGraph& graph, const ClusterCosts& costs)
    : graph_(graph),
      costs_(costs),
      order_(order_units(graph, glue(graph))),
      stage_costs_(graph, order_, costs_.of_kind(0)),
      sets_(down_sets(order_, kMaxDownSets)) {
  searched_units_ = static_cast<int>(std::ranges::count(order_.units.follows, false));
  const int nodes = static_cast<int>(sets_.size());
  edges_.resize(nodes);
  edge_costs_.resize(nodes);
  tbb::parallel_for(0, nodes, [&](int a) {
    for (int b = a + 1; b < nodes; ++b) {
      if (!sets_[a].is_subset_of(sets_[b])) continue;
      const StageCost cost = stage_costs_.of(sets_[b].minus(sets_[a]));
      edges_[a].push_back({.to = b, .time = cost.time});
      edge_costs_[a].push_back(cost);
    }
  });
}

std::vector<StageContext> SplitProblem::contexts(const SplitTarget& target) const {
  std::vector<StageContext> contexts;
  for (int s = 0; s < target.stages(); ++s)
    contexts.push_back(stage_context(target.schedule, s, target.stages(), target.micro_batch_sizes,
                                     costs_.micro_batch()));
  return contexts;
}

ChainSearch SplitProblem::chains(const SplitTarget& target) const {
  const std::vector<StageContext> context = contexts(target);
  std::vector<std::vector<std::vector<int64_t>>> weights(target.stages());
  tbb::parallel_for(0, target.stages(), [&](int s) {
    weights[s].resize(edges_.size());
    for (size_t a = 0; a < edges_.size(); ++a)
      for (const StageCost& cost : edge_costs_[a])
        weights[s][a].push_back(memory_bound(cost, context[s], target.devices[s]));
  });
  std::vector<int64_t> limits;
  for (const Device& device : target.devices) limits.push_back(device.memory.count);
  return ChainSearch(edges_, std::move(weights), std::move(limits));
}

int64_t SplitProblem::excess_bound(const SplitTarget& target,
                                   const ChainSearch::Chain& chain) const {
  const int stages = target.stages();
  std::vector<int> stage_of_unit(order_.units.blocks.size(), 0);
  for (size_t u = 0; u < stage_of_unit.size(); ++u)
    while (!sets_[chain.nodes[stage_of_unit[u] + 1]].has(static_cast<int>(u))) ++stage_of_unit[u];
  const std::vector<int> channels = stage_costs_.channels(stage_of_unit, stages);
  const std::vector<StageContext> context = contexts(target);
  int64_t worst = std::numeric_limits<int64_t>::min();
  for (int s = 0; s < stages; ++s) {
    const int a = chain.nodes[s];
    const auto edge = std::ranges::lower_bound(edges_[a], chain.nodes[s + 1], {}, &ChainEdge::to);
    const StageCost& cost = edge_costs_[a][edge - edges_[a].begin()];
    worst = std::max(worst, memory_bound(cost, context[s], target.devices[s], channels[s]) -
                                target.devices[s].memory.count);
  }
  return worst;
}

Split SplitProblem::make_split(const SplitTarget& target, const ChainSearch::Chain& chain) const {
  const int stages = target.stages();
  Split split;
  split.bottleneck = chain.bottleneck;
  split.placement.stage_of_block.assign(graph_.blocks.size(), -1);
  split.placement.recompute.assign(graph_.blocks.size(), false);
  split.placement.rank_of_stage.resize(stages);
  std::iota(split.placement.rank_of_stage.begin(), split.placement.rank_of_stage.end(), 0);
  for (int s = stages - 1; s >= 0; --s)
    for (int unit : sets_[chain.nodes[s + 1]].members())
      for (int b : order_.units.blocks[unit]) split.placement.stage_of_block[b] = s;
  check(placement_faults(graph_, split.placement).empty(),
        "solver: a chain of down-sets is no valid placement");
  const int micro_batches = static_cast<int>(target.micro_batch_sizes.size());
  split.schedule =
      insert_messages(graph_, split.placement,
                      generate_order(target.schedule, graph_, split.placement, micro_batches),
                      target.micro_batch_sizes);
  split.memory = predict_memory(graph_, split.placement, costs_, target.devices, split.schedule,
                                target.micro_batch_sizes);
  return split;
}

std::optional<Split> SplitProblem::fastest(const SplitTarget& target) const {
  const ChainSearch search = chains(target);
  std::optional<Split> found;
  int64_t margin = 0;  // largest gap seen between bound and prediction
  int validations = 0, visits = 0;
  const auto may_go_on = [&] { return validations < kMaxValidations && visits < kMaxVisits; };
  std::optional<int64_t> bottleneck = search.next_bottleneck(-1);
  while (bottleneck && !found && may_go_on()) {
    search.visit_at(*bottleneck, [&](const ChainSearch::Chain& chain) {
      ++visits;
      if (const int64_t bound = excess_bound(target, chain); bound > 0) {
        margin = std::max(margin, bound);
        return may_go_on();
      }
      Split split = make_split(target, chain);
      ++validations;
      if (split.excess(target) <= 0) {
        split.proven_bound = split.bottleneck;
        found = std::move(split);
        return false;
      }
      margin = std::max(margin, split.excess(target));
      return may_go_on();
    });
    if (!found && may_go_on()) bottleneck = search.next_bottleneck(*bottleneck);
  }
  if (found || !bottleneck) return found;
  // Too many splits end just above a cap: keep away from it, and say what is proven.
  for (int step = 0; step < kMarginSteps && !found; ++step, margin += std::max(kMiB, margin / 4))
    found = with_margin(target, margin);
  if (!found) {  // what fits may keep no margin at all
    Split split = leanest(target).split;
    if (split.excess(target) <= 0) found = std::move(split);
  }
  if (found) found->proven_bound = std::min(*bottleneck, found->bottleneck);
  return found;
}

std::optional<Split> SplitProblem::with_margin(const SplitTarget& target, int64_t margin) const {
  SplitTarget smaller = target;
  for (Device& device : smaller.devices) device.memory -= Bytes{margin};
  const ChainSearch search = chains(smaller);
  const std::optional<int64_t> bottleneck = search.next_bottleneck(-1);
  std::optional<Split> found;
  if (!bottleneck) return found;
  search.visit_at(*bottleneck, [&](const ChainSearch::Chain& chain) {
    Split split = make_split(target, chain);
    if (split.excess(target) <= 0) found = std::move(split);
    return false;
  });
  return found;
}

SplitProblem::Leanest SplitProblem::leanest(const SplitTarget& target) const {
  std::optional<Split> best;
  bool proven = false;
  int validations = 0, visits = 0;
  chains(target).visit_by_excess([&](const ChainSearch::Chain& chain) {
    if (best && chain.weight >= best->excess(target)) {
      proven = true;
      return false;
    }
    if (best && excess_bound(target, chain) >= best->excess(target)) return ++visits < kMaxVisits;
    Split split = make_split(target, chain);
    if (!best || split.excess(target) < best->excess(target)) best = std::move(split);
    return ++validations < kMaxValidations;
  });
  check(best.has_value(), "solver: no chain of down-sets at all");
  return {.split = std::move(*best), .proven = proven};
}

}  // namespace stagecraft
