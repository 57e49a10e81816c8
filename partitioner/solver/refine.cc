#include "partitioner/solver/refine.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <optional>
#include <tuple>

namespace stagecraft {
namespace {

// So many actions are simulated in all; more would be for one round of two blocks at a time.
constexpr int64_t kMostActions = 5'000'000, kMostPairActions = 2'000'000;

struct Move {
  int block = 0, stage = 0;
};
using Moves = std::vector<Move>;

class Refinement {
 public:
  Refinement(const StageTable& table, const SplitTarget& target) : table_(table), target_(target) {}

  // One move better than `split`, or nothing.
  std::optional<Split> improve(const Split& split) {
    const Moves single = moves_of(split.placement);
    const auto count = static_cast<int64_t>(single.size());
    const auto actions = static_cast<int64_t>(split.step.actions.size());
    simulated_ += count * actions;
    if (simulated_ > kMostActions) return {};
    std::vector<Moves> candidates;
    for (const Move& move : single) candidates.push_back({move});
    std::optional<Split> best = best_of(split, candidates);
    if (best) return best;
    // Two at a time, the second perhaps possible only once the first has moved.
    candidates.clear();
    for (const Move& first : single)
      for (const Move& second : moves_of(moved(split.placement, {first})))
        if (second.block != first.block) candidates.push_back({first, second});
    const int64_t pair_actions = static_cast<int64_t>(candidates.size()) * actions;
    simulated_ += pair_actions;
    if (pair_actions > kMostPairActions || simulated_ > kMostActions) return {};
    return best_of(split, candidates);
  }

 private:
  // Blocks next to a cut, each across it.
  Moves moves_of(const Placement& placement) const {
    const BlockGraph& graph = table_.graph();
    Moves moves;
    for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
      const int stage = placement.stage_of_block[b];
      if (stage < 0 || is_fixed(b)) continue;
      for (int to : {stage - 1, stage + 1}) {
        if (to < 0 || to >= target_.stages() || !has_edges_to(placement, b, to)) continue;
        if (!placement_faults(graph, moved(placement, {{b, to}})).empty()) continue;
        moves.push_back({b, to});
      }
    }
    return moves;
  }
  // No edge would go against the stage order: most of what `placement_faults` finds, fast.
  bool has_edges_to(const Placement& placement, int block, int stage) const {
    const BlockGraph& graph = table_.graph();
    const auto is_after = [&](int value) {
      const int producer = graph.values[value].producer;
      return producer < 0 || placement.stage_of_block[producer] <= stage;
    };
    const auto is_before = [&](int consumer) {
      return !graph.blocks[consumer].reaches_loss || placement.stage_of_block[consumer] >= stage;
    };
    return !graph.blocks[block].reaches_loss ||
           (std::ranges::all_of(graph.blocks[block].inputs, is_after) &&
            std::ranges::all_of(graph.values[graph.blocks[block].output].consumers, is_before));
  }
  bool is_fixed(int block) const {
    return std::ranges::any_of(target_.fixed, [&](const auto& f) { return f.first == block; });
  }
  static Placement moved(Placement placement, const Moves& moves) {
    for (const Move& move : moves) placement.stage_of_block[move.block] = move.stage;
    return placement;
  }

  std::optional<Split> best_of(const Split& split, const std::vector<Moves>& candidates) const {
    std::vector<std::optional<Split>> better(candidates.size());
    tbb::parallel_for(size_t{0}, candidates.size(),
                      [&](size_t i) { better[i] = improved(split, candidates[i]); });
    std::optional<Split> best;
    for (std::optional<Split>& other : better)
      if (other && (!best || key(*other) < key(*best))) best = std::move(other);
    return best;
  }

  std::optional<Split> improved(const Split& split, const Moves& moves) const {
    const BlockGraph& graph = table_.graph();
    Split other = split;
    other.placement = moved(std::move(other.placement), moves);
    if (moves.size() > 1 && !placement_faults(graph, other.placement).empty()) return {};
    const std::vector<int64_t>& sizes = target_.micro_batch_sizes;
    other.schedule = make_schedule(target_.schedule, graph, other.placement, sizes);
    other.step =
        simulate(graph, other.placement, table_.costs(), target_.cluster, other.schedule, sizes);
    if (other.step.makespan > split.step.makespan) return {};
    other.memory = predict_memory(graph, other.placement, table_.costs(), target_.cluster.devices,
                                  other.schedule, sizes);
    if (other.excess(target_) > 0 || key(other) >= key(split)) return {};
    return other;
  }
  static std::tuple<Nanos, Bytes> key(const Split& split) {
    return {split.step.makespan, split.peak()};
  }

  const StageTable& table_;
  const SplitTarget& target_;
  int64_t simulated_ = 0;
};

}  // namespace

Split refine(const StageTable& table, const SplitTarget& target, Split split,
             const SearchLimits& limits) {
  if (split.excess(target) > 0) return split;
  Refinement refinement(table, target);
  while (!limits.is_over()) {
    std::optional<Split> better = refinement.improve(split);
    if (!better) break;
    split = *std::move(better);
  }
  return split;
}

}  // namespace stagecraft
