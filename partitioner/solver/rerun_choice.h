// What one stage runs again so that the bound of its memory keeps a limit.
//
// Scratch of one thread; the arguments must outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

class RerunChoice {
 public:
  // `e` as stage `stage` on `rank`.
  RerunChoice(const StageTable& table, const SplitTarget& target, int stage, int rank, int e);

  // All that the stage could run again, most bytes per time first.
  const std::vector<StageCosts::Rerun>& reruns() const { return reruns_; }
  // The bound with those of `chosen`, positions in `reruns`, running again.
  int64_t bound(const std::vector<int>& chosen);
  // The shortest beginning of `reruns` whose bound is within `limit`, then without what it does not
  // need; empty when none is.
  std::vector<int> densest_within(int64_t limit);
  int64_t time(const std::vector<int>& chosen) const;

 private:
  const Device& device_;
  const UnitSet units_;
  const StageCosts& costs_;
  const StageContext context_;
  StageReplay replay_;
  const std::vector<StageCosts::Rerun> reruns_;
  std::vector<bool> recompute_;  // by block
};

// 0 to count - 1.
std::vector<int> first_positions(int count);

}  // namespace stagecraft
