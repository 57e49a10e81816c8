// The least largest stage over chains of down-sets.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "partitioner/base/error.h"
#include "partitioner/baselines/baselines.h"
#include "partitioner/solver/down_sets.h"
#include "partitioner/solver/solver.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxPrefixes = 3000;

// The best chain of s + 1 down-sets that ends with each of them.
struct ChainEnds {
  std::vector<int64_t> largest;
  std::vector<int> before;
};

// Time of the blocks in each down-set on one kind of device: a stage takes the difference.
std::vector<int64_t> prefix_times(const BlockGraph& graph, const UnitOrder& order,
                                  const std::vector<UnitSet>& sets, const CostTable& costs) {
  std::vector<int64_t> of_unit;
  for (const std::vector<int>& blocks : order.units.blocks) {
    int64_t sum = 0;
    for (const int b : blocks) {
      if (!graph.blocks[b].reaches_loss) continue;
      const BlockCost& cost = costs.blocks.at(graph.blocks[b].name);
      sum += cost.forward.median.count + cost.backward_input.median.count +
             cost.backward_weight.median.count;
    }
    of_unit.push_back(sum);
  }
  std::vector<int64_t> times;
  for (const UnitSet& set : sets) {
    int64_t sum = 0;
    for (const int unit : set.members()) sum += of_unit[unit];
    times.push_back(sum);
  }
  return times;
}

ChainEnds extend(const ChainEnds& ends, const std::vector<UnitSet>& sets,
                 const std::vector<int64_t>& times) {
  const int nodes = static_cast<int>(sets.size());
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  ChainEnds next{.largest = std::vector<int64_t>(nodes, kNone),
                 .before = std::vector<int>(nodes, -1)};
  for (int a = 0; a < nodes; ++a) {
    if (ends.largest[a] == kNone) continue;
    for (int b = a + 1; b < nodes; ++b) {
      const int64_t largest = std::max(ends.largest[a], times[b] - times[a]);
      if (largest >= next.largest[b] || !sets[a].is_subset_of(sets[b])) continue;
      next.largest[b] = largest;
      next.before[b] = a;
    }
  }
  return next;
}

}  // namespace

Baseline branch_baseline(const BlockGraph& graph, const ClusterCosts& costs, int stages) {
  const UnitOrder order = order_units(graph, glue(graph));
  const int units = static_cast<int>(order.units.blocks.size());
  if (stages < 1 || stages > units) {
    throw ConfigError(
        fmt::format("{} stages for {} units of blocks: give 1 to {}", stages, units, units));
  }
  const std::vector<UnitSet> sets = down_sets(order, kMaxPrefixes);
  std::vector<std::vector<int64_t>> times;
  for (int kind = 0; kind < costs.kinds(); ++kind) {
    times.push_back(prefix_times(graph, order, sets, costs.of_kind(kind)));
  }
  std::vector<ChainEnds> ends(1);
  ends[0].largest.assign(sets.size(), std::numeric_limits<int64_t>::max());
  ends[0].largest[0] = 0;
  for (int s = 0; s < stages; ++s) {
    ends.push_back(extend(ends.back(), sets, times[costs.kind_of_rank(s)]));
  }
  Baseline baseline{.name = "least largest stage, over branches",
                    .how = "the time of the slowest stage, branches split side by side",
                    .placement = {}};
  Placement& placement = baseline.placement;
  placement.stage_of_block.assign(graph.blocks.size(), -1);
  placement.recompute.assign(graph.blocks.size(), false);
  placement.rank_of_stage.resize(stages);
  std::iota(placement.rank_of_stage.begin(), placement.rank_of_stage.end(), 0);
  int node = static_cast<int>(sets.size()) - 1;
  for (int s = stages; s > 0; --s) {
    const int before = ends[s].before[node];
    check(before >= 0, "baselines: no chain of down-sets");
    for (const int unit : sets[node].minus(sets[before]).members()) {
      for (const int b : order.units.blocks[unit]) placement.stage_of_block[b] = s - 1;
    }
    node = before;
  }
  check(placement_faults(graph, placement).empty(),
        "baselines: a chain of down-sets is no valid placement");
  return baseline;
}

}  // namespace stagecraft
