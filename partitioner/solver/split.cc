#include "partitioner/solver/split.h"

#include <algorithm>
#include <limits>

#include "partitioner/base/error.h"
#include "partitioner/solver/rerun_choice.h"

namespace stagecraft {
namespace {

// Chooses what one stage runs again. The memory model judges; where there are many blocks, the
// bound of the stage alone does, which differs from it by what the other stages add.
class Recompute {
 public:
  Recompute(const StageTable& table, const SplitTarget& target, const MemoryModel& model,
            Split& split, int stage)
      : model_(model),
        split_(split),
        rank_(split.chain.ranks[stage]),
        cap_(target.cluster.devices[rank_].memory.count),
        choice_(table, target, stage, rank_, split.chain.edges[stage]),
        count_(static_cast<int>(choice_.reruns().size())) {}

  bool is_exact() const { return count_ <= kExactReruns; }

  void choose(bool lean) {
    const bool fits = count_ <= kExactReruns ? try_all_subsets() : try_by_density();
    if (!fits) set(lean ? leanest() : std::vector<int>{});
  }

 private:
  void set(const std::vector<int>& chosen) {
    for (const StageCosts::Rerun& rerun : choice_.reruns())
      split_.placement.recompute[rerun.block] = false;
    for (int i : chosen) split_.placement.recompute[choice_.reruns()[i].block] = true;
  }
  // The rank's memory with the choice.
  int64_t memory(const std::vector<int>& chosen) {
    set(chosen);
    return model_.of_rank(rank_, split_.placement).total().count;
  }

  bool try_all_subsets() {
    std::vector<std::pair<int64_t, int>> subsets;  // time, members
    const auto members_of = [&](int members) {
      std::vector<int> chosen;
      for (int i = 0; i < count_; ++i)
        if ((members >> i & 1) != 0) chosen.push_back(i);
      return chosen;
    };
    for (int members = 1; members < 1 << count_; ++members)
      subsets.emplace_back(choice_.time(members_of(members)), members);
    std::ranges::sort(subsets);
    return std::ranges::any_of(
        subsets, [&](const auto& subset) { return memory(members_of(subset.second)) <= cap_; });
  }

  bool try_by_density() {
    int64_t limit = cap_ - (memory({}) - choice_.bound({}));
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      const std::vector<int> chosen = choice_.densest_within(limit);
      if (chosen.empty()) break;
      const int64_t over = memory(chosen) - cap_;
      if (over <= 0) return true;
      limit -= over;
    }
    return memory(first_positions(count_)) <= cap_;
  }

  std::vector<int> leanest() {
    int best = 0;
    int64_t least = choice_.bound({});
    for (int count = 1; count <= count_; ++count) {
      const int64_t bytes = choice_.bound(first_positions(count));
      if (bytes < least) {
        least = bytes;
        best = count;
      }
    }
    return first_positions(best);
  }

  static constexpr int kAttempts = 4;

  const MemoryModel& model_;
  Split& split_;
  const int rank_;
  const int64_t cap_;
  RerunChoice choice_;
  const int count_;
};

}  // namespace

int64_t transfer_between(const StageTable& table, const SplitTarget& target, int from_rank,
                         int to_rank, int64_t bytes, int64_t samples) {
  return transfer_time(target.cluster.between(from_rank, to_rank),
                       Bytes{bytes / table.costs().micro_batch() * samples})
      .count;
}

std::vector<SplitTarget> both_transfers(const SplitTarget& target) {
  std::vector<SplitTarget> ways(target.stages() < 3 ? 1 : 2, target);
  for (SplitTarget& way : ways) way.relays = &way != &ways.front();
  return ways;
}

Placement placement_of(const StageTable& table, const SplitTarget& target, const Chain& chain) {
  Placement placement;
  placement.stage_of_block.assign(table.graph().blocks.size(), -1);
  placement.recompute.assign(table.graph().blocks.size(), false);
  placement.rank_of_stage = chain.ranks;
  placement.relays = target.relays;
  for (size_t s = 0; s < chain.edges.size(); ++s)
    for (int unit : table.stage(chain.edges[s]).members())
      for (int b : table.order().units.blocks[unit])
        placement.stage_of_block[b] = static_cast<int>(s);
  check(placement_faults(table.graph(), placement).empty(),
        "solver: a chain of down-sets is no valid placement");
  return placement;
}

Bytes Split::peak() const { return fullest_of(memory); }

int64_t Split::excess(const SplitTarget& target) const {
  int64_t worst = std::numeric_limits<int64_t>::min();
  for (size_t r = 0; r < memory.size(); ++r)
    worst = std::max(worst, memory[r].total().count - target.cluster.devices[r].memory.count);
  return worst;
}

StageContext context_of(const StageTable& table, const SplitTarget& target, int stage) {
  return stage_context(target.schedule, stage, target.stages(), target.micro_batch_sizes,
                       table.costs().micro_batch());
}

Split make_split(const StageTable& table, const SplitTarget& target, const Chain& chain,
                 bool lean) {
  Split split{.chain = chain,
              .placement = placement_of(table, target, chain),
              .schedule = {},
              .memory = {},
              .step = {}};
  split.schedule =
      make_schedule(target.schedule, table.graph(), split.placement, target.micro_batch_sizes);
  const MemoryModel model(table.graph(), split.placement, table.costs(), target.cluster.devices,
                          split.schedule, target.micro_batch_sizes);
  for (int r = 0; r < target.stages(); ++r)
    split.memory.push_back(model.of_rank(r, split.placement));
  if (target.may_recompute)
    for (int s = 0; s < target.stages(); ++s) {
      const int rank = chain.ranks[s];
      if (split.memory[rank].total() <= target.cluster.devices[rank].memory) continue;
      Recompute choice(table, target, model, split, s);
      choice.choose(lean);
      split.is_exact = split.is_exact && choice.is_exact();
      split.memory[rank] = model.of_rank(rank, split.placement);
    }
  split.step = simulate(table.graph(), split.placement, table.costs(), target.cluster,
                        split.schedule, target.micro_batch_sizes);
  return split;
}

}  // namespace stagecraft
