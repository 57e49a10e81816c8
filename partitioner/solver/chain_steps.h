// The simulated step of complete chains, fast: lists of actions depend only on which stages talk to
// which, so they are made once for each pattern and timed by simulate/step_clock.h.
//
// Internally synchronised: any thread may call. The arguments must outlive the object.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "partitioner/simulate/step_clock.h"
#include "partitioner/solver/split.h"
#include "partitioner/solver/step_bound.h"

namespace stagecraft {

class ChainSteps {
 public:
  ChainSteps(const StageTable& table, const SplitTarget& target);

  // ns; `backward_more[s]`: ns that stage s runs again for a micro-batch of the table's size.
  int64_t step(const Chain& chain, const std::vector<int64_t>& backward_more) const;

 private:
  struct Pattern {
    Schedule schedule;
    StepClock clock;
  };
  std::shared_ptr<const Pattern> pattern_of(const Chain& chain, std::vector<int64_t> key) const;

  const StageTable& table_;
  const SplitTarget& target_;
  const Pace pace_;
  mutable std::mutex mutex_;
  mutable std::map<std::vector<int64_t>, std::shared_ptr<const Pattern>> patterns_;
  mutable int64_t kept_actions_ = 0;  // of all patterns; forgotten when too many
};

}  // namespace stagecraft
