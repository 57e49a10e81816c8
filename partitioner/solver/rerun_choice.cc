#include "partitioner/solver/rerun_choice.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace stagecraft {

std::vector<int> first_positions(int count) {
  std::vector<int> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

RerunChoice::RerunChoice(const StageTable& table, const SplitTarget& target, int stage, int rank,
                         int e)
    : device_(target.cluster.devices[rank]),
      units_(table.stage(e)),
      costs_(table.stage_costs(table.costs().kind_of_rank(rank))),
      context_(context_of(table, target, stage)),
      replay_(costs_.make_replay()),
      reruns_(costs_.reruns(units_)),
      recompute_(table.graph().blocks.size(), false) {}

int64_t RerunChoice::bound(const std::vector<int>& chosen) {
  for (int i : chosen) recompute_[reruns_[i].block] = true;
  const int64_t bytes = memory_bound(costs_.of(units_, replay_, &recompute_), context_, device_);
  for (int i : chosen) recompute_[reruns_[i].block] = false;
  return bytes;
}

std::vector<int> RerunChoice::densest_within(int64_t limit) {
  int low = 1, high = static_cast<int>(reruns_.size());
  if (high == 0 || bound(first_positions(high)) > limit) return {};
  while (low < high) {
    const int middle = (low + high) / 2;
    if (bound(first_positions(middle)) <= limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<int> chosen = first_positions(high), by_time = chosen;
  std::ranges::stable_sort(by_time, std::greater<>{}, [&](int i) { return reruns_[i].time; });
  for (int i : by_time) {
    std::vector<int> without = chosen;
    std::erase(without, i);
    if (bound(without) <= limit) chosen = std::move(without);
  }
  return chosen;
}

int64_t RerunChoice::time(const std::vector<int>& chosen) const {
  int64_t sum = 0;
  for (int i : chosen) sum += reruns_[i].time;
  return sum;
}

}  // namespace stagecraft
