// Which possible stages may stand where: memory caps, fixed blocks, and what running blocks again
// would have to cost.
//
// Immutable after construction; the arguments must outlive it. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

// Devices that the search need not tell apart: equal in kind, links, memory and what else the
// memory bound reads. Ranks of a class are used in ascending order. Where that gives too many
// orders links do not count, and where it still does stages take devices in the order given.
struct DeviceClass {
  int kind = 0;
  std::vector<int> ranks;
};

class StageOptions {
 public:
  StageOptions(const StageTable& table, const SplitTarget& target);

  // With the order given each rank is a class of its own, and stage s has class s.
  const std::vector<DeviceClass>& classes() const { return classes_; }
  bool any_order() const { return any_order_; }
  static constexpr int64_t kForbidden = -1;
  // ns by which the backward pass of a micro-batch must be longer for the stage to fit (0: fits as
  // it is); never more than what is really needed. kForbidden: it cannot fit.
  int64_t backward_more(int stage, int device_class, int e) const {
    const auto& more = more_[stage * static_cast<int>(classes_.size()) + device_class];
    return more.empty() ? kForbidden : more[e];
  }
  // ns by which it is longer when the densest blocks run again until the stage's bound fits, as
  // make_split chooses; 0 for stages of up to kExactReruns such blocks. A large number when not
  // even all of them are enough. Remembered; any thread.
  int64_t likely_more(int s, int c, int e) const;

 private:
  void make_classes(bool by_links);
  double count_multisets() const;  // of used devices
  int64_t find_more(int s, int c, int e) const;

  const StageTable& table_;
  const SplitTarget& target_;
  bool any_order_ = false;
  std::vector<DeviceClass> classes_;
  std::vector<std::vector<int64_t>> more_;
  mutable std::mutex mutex_;
  mutable std::map<std::tuple<int, int, int>, int64_t> likely_;
};

}  // namespace stagecraft
