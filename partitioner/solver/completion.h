// Bounds of every way to complete a chain, by dynamic programming from the end.
//
// State: a down-set and the devices that are used up. Immutable after construction; the arguments
// must outlive it. Any thread.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "partitioner/solver/stage_options.h"
#include "partitioner/solver/step_bound.h"

namespace stagecraft {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max() / 4;

// Which devices are used up, numbered: multisets of classes when the order is free, else how many.
// None is 0.
class UsedDevices {
 public:
  UsedDevices(const StageOptions& options, int stages);
  int states() const { return static_cast<int>(stage_.size()); }
  int stage(int state) const { return stage_[state]; }  // how many are used
  int with(int state, int device_class) const;          // -1: none of the class is left
  int used(int state, int device_class) const;

 private:
  std::vector<int> weight_, count_;  // by class; empty: in order
  std::vector<int> stage_;
};

// How stages depend on each other (docs/search.md, "The bound").
enum class Shape {
  kLine,         // each needs the one before it, forward and backward
  kBranchLater,  // a line so far, but somewhere later two neighbours must not need each other
  kBranched,     // anything
};

class Completion {
 public:
  Completion(const StageTable& table, const SplitTarget& target, const StageOptions& options);

  const UsedDevices& devices() const { return devices_; }
  const Pace& pace() const { return pace_; }
  StageWork work(int stage, int device_class, int e) const;
  // Lower bound of the step of every chain with edge `e` as that stage.
  int64_t of_stage(int stage, int device_class, int e) const {
    return branch_bound(e, work(stage, device_class, e));
  }

  // Lower bound of the step of every chain that goes on from `node`, when everything before took
  // its least time: a longer way there and back adds to it. kNever: cannot be completed.
  int64_t of(Shape shape, int used, int node) const {
    return best_[static_cast<int>(shape)][static_cast<size_t>(used) * nodes_ + node];
  }

 private:
  int64_t line_bound(const StageTable::Edge& edge, const StageWork& work) const;
  int64_t branch_bound(int e, const StageWork& work) const;

  const StageTable& table_;
  const SplitTarget& target_;
  const StageOptions& options_;
  const Pace pace_;
  const UsedDevices devices_;
  const int nodes_;
  std::array<std::vector<int64_t>, 3> best_;
};

}  // namespace stagecraft
