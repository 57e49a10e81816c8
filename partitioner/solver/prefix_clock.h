// What the first stages of a chain say about its step when they are simulated: they wait for each
// other as in the real order, and for what is open as long as the longest way through it takes.
//
// A lower bound of the simulated step of every chain that begins so (docs/search.md, "The bound").
// Immutable after construction; the arguments must outlive it. Any thread, each with a scratch of
// its own.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/solver/split.h"
#include "partitioner/solver/stage_table.h"
#include "partitioner/solver/step_bound.h"

namespace stagecraft {

class PrefixClock {
 public:
  PrefixClock(const StageTable& table, const SplitTarget& target);

  // Stages 0, 1, ... of a chain.
  struct Stage {
    int edge = 0, rank = 0;
    StageWork work;
  };
  class Scratch;  // memory that calls share
  // ns. `is_line`: in every chain that is meant each stage needs the one before it, forward and
  // (of those that have a backward pass) backward.
  int64_t bound(const std::vector<Stage>& stages, bool is_line, Scratch& scratch) const;

 private:
  struct Need {
    int stage = 0;
    int64_t first = 0, last = 0;  // ns of the transfer, of a full and of the last micro-batch
  };
  struct Progress {
    int64_t in_flight = 0;
    std::vector<Need> needs, gives;  // earlier stages that it reads; later ones with its gradients
    bool waits_for_rest = false;
    int64_t on = 0, home = 0;             // through what is open to the prediction, and back
    int64_t forwards = 0, backwards = 0;  // done
    int64_t now = 0;
    std::vector<int64_t> forward_end, backward_end;  // by micro-batch
  };
  void connect(const std::vector<Stage>& stages, bool is_line, Scratch& scratch) const;
  bool advance(const Stage& stage, Progress& progress, Scratch& scratch) const;

  const StageTable& table_;
  const SplitTarget& target_;
  const Pace pace_;
  const int64_t last_in_flight_;  // micro-batches on the last stage
};

class PrefixClock::Scratch {
  friend class PrefixClock;
  std::vector<Progress> progress_;
  int64_t end_ = 0;
};

}  // namespace stagecraft
