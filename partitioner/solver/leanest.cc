#include "partitioner/solver/leanest.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
constexpr int64_t kMaxSplits = 200, kMinSplits = 8;  // chains made exact
constexpr int64_t kForwardsOfSplit = 32;

// What a stage needs above its device's memory, at least.
class Excess {
 public:
  Excess(const StageTable& table, const SplitTarget& target) : table_(table), target_(target) {
    for (int s = 0; s < target.stages(); ++s) contexts_.push_back(context_of(table, target, s));
  }
  int64_t of(int s, int e) const {
    const int kind = table_.costs().kind_of_rank(s);
    const Device& device = target_.cluster.devices[s];
    int64_t excess = memory_bound(table_.cost(kind, e), contexts_[s], device) - device.memory.count;
    if (!target_.may_recompute) return excess;
    for (const StageCosts::Rerun& rerun : table_.stage_costs(kind).reruns(table_.stage(e)))
      excess -= static_cast<int64_t>(most_freed(rerun, contexts_[s], device));
    return excess;
  }

 private:
  const StageTable& table_;
  const SplitTarget& target_;
  std::vector<StageContext> contexts_;
};

struct Beginning {
  int64_t bound;  // of every chain that starts like this
  std::vector<int> edges;
  int node;
  int64_t excess;
};
// Lowest bound first; among equals the one that reads first.
struct HigherExcess {
  bool operator()(const Beginning& a, const Beginning& b) const {
    return a.bound != b.bound ? a.bound > b.bound : a.edges > b.edges;
  }
};

}  // namespace

Leanest leanest_split(const StageTable& table, const SplitTarget& target) {
  const int p = target.stages(), nodes = table.nodes();
  const Excess excess(table, target);
  std::vector<std::vector<int64_t>> edge_excess(p, std::vector<int64_t>(table.edges()));
  // By stage and node: the least that the fullest of the stages from there on needs.
  std::vector<std::vector<int64_t>> rest(p + 1, std::vector<int64_t>(nodes, kNone));
  rest[p][nodes - 1] = std::numeric_limits<int64_t>::min();
  for (int s = p - 1; s >= 0; --s)
    tbb::parallel_for(0, nodes, [&](int a) {
      for (int e = table.first_edge(a); e < table.end_edge(a); ++e) {
        edge_excess[s][e] = excess.of(s, e);
        const int64_t after = rest[s + 1][table.edge(e).to];
        if (after != kNone) rest[s][a] = std::min(rest[s][a], std::max(edge_excess[s][e], after));
      }
    });
  check(rest[0][0] != kNone, "solver: fewer units than stages");

  // Long steps take long to look at.
  const int64_t forwards = p * static_cast<int64_t>(target.micro_batch_sizes.size());
  const auto most_splits =
      std::clamp<int64_t>(kMaxSplits * kForwardsOfSplit / forwards, kMinSplits, kMaxSplits);
  const std::vector<SplitTarget> ways = both_transfers(target);
  std::optional<Split> best;
  bool is_proven = false;
  std::priority_queue<Beginning, std::vector<Beginning>, HigherExcess> open;
  open.push(
      {.bound = rest[0][0], .edges = {}, .node = 0, .excess = std::numeric_limits<int64_t>::min()});
  for (int made = 0; !open.empty() && made < most_splits;) {
    const Beginning beginning = open.top();
    open.pop();
    if (best && beginning.bound >= best->excess(target)) {
      is_proven = true;
      break;
    }
    const int s = static_cast<int>(beginning.edges.size());
    if (s == p) {
      Chain chain{.edges = beginning.edges, .ranks = std::vector<int>(p)};
      std::iota(chain.ranks.begin(), chain.ranks.end(), 0);
      for (const SplitTarget& way : ways) {
        Split split = make_split(table, way, chain, /*lean=*/true);
        if (!best || split.excess(target) < best->excess(target)) best = std::move(split);
      }
      ++made;
      continue;
    }
    for (int e = table.first_edge(beginning.node); e < table.end_edge(beginning.node); ++e) {
      const int64_t after = rest[s + 1][table.edge(e).to];
      if (after == kNone) continue;
      Beginning longer{.bound = 0,
                       .edges = beginning.edges,
                       .node = table.edge(e).to,
                       .excess = std::max(beginning.excess, edge_excess[s][e])};
      longer.bound = std::max(longer.excess, after);
      if (best && longer.bound >= best->excess(target)) continue;
      longer.edges.push_back(e);
      open.push(std::move(longer));
    }
  }
  check(best.has_value(), "solver: no chain of down-sets at all");
  return {.split = std::move(*best), .is_proven = is_proven || open.empty()};
}

}  // namespace stagecraft
