#include <algorithm>
#include <limits>

#include "partitioner/base/error.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {

Cuts min_max_cuts(const std::vector<int64_t>& weights, int parts) {
  const int items = static_cast<int>(weights.size());
  check(parts > 0 && items >= parts, "cuts: fewer items than parts");
  constexpr int64_t kImpossible = std::numeric_limits<int64_t>::max();
  // largest[j][i]: the least largest part of items i.. in j parts; cut[j][i]: where the first of
  // them ends.
  std::vector<std::vector<int64_t>> largest(parts + 1,
                                            std::vector<int64_t>(items + 1, kImpossible));
  std::vector<std::vector<int>> cut(parts + 1, std::vector<int>(items + 1, 0));
  largest[0][items] = 0;
  for (int j = 1; j <= parts; ++j) {
    for (int i = items - j; i >= 0; --i) {
      int64_t first = 0;
      for (int end = i + 1; end <= items - (j - 1); ++end) {
        first += weights[end - 1];
        const int64_t rest = largest[j - 1][end];
        if (rest == kImpossible) continue;
        if (const int64_t most = std::max(first, rest); most < largest[j][i]) {
          largest[j][i] = most;
          cut[j][i] = end;
        }
      }
    }
  }
  Cuts cuts{0};
  for (int j = parts; j > 0; --j) cuts.push_back(cut[j][cuts.back()]);
  return cuts;
}

}  // namespace stagecraft
