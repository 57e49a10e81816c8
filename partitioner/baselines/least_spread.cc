#include <algorithm>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {
namespace {

// One split of the first items into some parts.
struct SplitSoFar {
  int64_t largest = 0, smallest = 0;
  int last_cut = 0;  // where its last part begins
  int64_t spread() const { return largest - smallest; }
};

}  // namespace

Cuts least_spread_cuts(const std::vector<int64_t>& weights, int parts) {
  const int items = static_cast<int>(weights.size());
  check(parts > 0 && items >= parts, "cuts: fewer items than parts");
  std::vector<int64_t> before{0};  // sum of the first i weights
  for (const int64_t weight : weights) before.push_back(before.back() + weight);
  // best[j][i]: the first i items in j parts.
  std::vector<std::vector<std::optional<SplitSoFar>>> best(
      parts + 1, std::vector<std::optional<SplitSoFar>>(items + 1));
  for (int i = 1; i <= items; ++i) best[1][i] = {.largest = before[i], .smallest = before[i]};
  for (int j = 2; j <= parts; ++j) {
    for (int i = j; i <= items; ++i) {
      for (int cut = j - 1; cut < i; ++cut) {
        const int64_t last = before[i] - before[cut];
        const SplitSoFar& head = *best[j - 1][cut];
        const SplitSoFar split{.largest = std::max(head.largest, last),
                               .smallest = std::min(head.smallest, last),
                               .last_cut = cut};
        if (!best[j][i] || split.spread() <= best[j][i]->spread()) best[j][i] = split;
      }
    }
  }
  Cuts cuts{items};
  for (int j = parts; j > 0; --j) cuts.push_back(best[j][cuts.back()]->last_cut);
  std::ranges::reverse(cuts);
  return cuts;
}

}  // namespace stagecraft
