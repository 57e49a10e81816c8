// Good chains by random walks: threshold accepting (Dueck and Scheuer, J. Comput. Phys. 90, 1990)
// over cuts that move, and unequal devices that change places.
//
// Deterministic; any thread. The arguments must outlive the object.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

struct TimedChain {
  int64_t step = 0;  // ns
  Chain chain;
  auto operator<=>(const TimedChain&) const = default;
};

class ChainWalk {
 public:
  // ns; a very large number for a chain that may not be. At `limit` or above a lower bound will do.
  using StepOf = std::function<int64_t(const Chain& chain, int64_t limit)>;

  // `class_of_rank`: devices of one class are alike, and stages take them in ascending rank. Any
  // thread may call `step_of`.
  ChainWalk(const StageTable& table, std::vector<int> class_of_rank, StepOf step_of);

  // The best chain that `moves` moves from `from` come by. The walk is decided by `seed`.
  TimedChain best_from(TimedChain from, int moves, uint64_t seed) const;

 private:
  const StageTable& table_;
  const std::vector<int> class_of_rank_;
  const StepOf step_of_;
  std::vector<std::vector<int>> near_;  // by down-set: those that differ by one or two units
};

}  // namespace stagecraft
