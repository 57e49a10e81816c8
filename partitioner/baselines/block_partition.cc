#include <algorithm>
#include <cstdlib>

#include "partitioner/base/error.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {
namespace {

class BlockPartition {
 public:
  BlockPartition(const std::vector<int64_t>& weights, int parts) {
    const auto [least, most] = std::ranges::minmax(weights);
    largest_weight_ = most - least;
    before_.push_back(0);
    for (const int64_t weight : weights) before_.push_back(before_.back() + weight - least);
    const int items = static_cast<int>(weights.size());
    for (int i = 0; i < parts; ++i) cuts_.push_back(items / parts * i);
    cuts_.push_back(items);
  }

  Cuts run() {
    int largest = largest_part();
    for (;;) {
      const int smallest = smallest_part(largest);
      if (size(largest) <= size(smallest) + largest_weight_) return cuts_;
      const int giver = largest < smallest ? smallest - 1 : smallest + 1;
      if (giver < smallest) {
        --cuts_[smallest];
      } else {
        ++cuts_[giver];
      }
      if (giver == largest) largest = largest_part();
    }
  }

 private:
  int parts() const { return static_cast<int>(cuts_.size()) - 1; }
  int64_t size(int part) const { return before_[cuts_[part + 1]] - before_[cuts_[part]]; }
  int largest_part() const {  // the last of several
    int best = 0;
    for (int i = 1; i < parts(); ++i) {
      if (size(i) >= size(best)) best = i;
    }
    return best;
  }
  // The one next to `largest` among several: whatever lies between is larger, hence not empty.
  int smallest_part(int largest) const {
    int best = 0;
    for (int i = 1; i < parts(); ++i) {
      if (size(i) > size(best)) continue;
      if (size(i) < size(best) || std::abs(i - largest) < std::abs(best - largest)) best = i;
    }
    return best;
  }

  std::vector<int64_t> before_;  // sum of the first i shifted weights
  int64_t largest_weight_ = 0;
  Cuts cuts_;
};

}  // namespace

Cuts block_partition_cuts(const std::vector<int64_t>& weights, int parts) {
  const int items = static_cast<int>(weights.size());
  check(parts > 0 && items >= parts, "cuts: fewer items than parts");
  Cuts cuts = BlockPartition(weights, parts).run();
  // A part may have given away its last item (weight 0 after the shift); a stage needs one.
  for (int i = 1; i < parts; ++i) cuts[i] = std::max(cuts[i], cuts[i - 1] + 1);
  for (int i = parts - 1; i > 0; --i) cuts[i] = std::min(cuts[i], cuts[i + 1] - 1);
  return cuts;
}

}  // namespace stagecraft
