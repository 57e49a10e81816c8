// Sleeping for planned times, so that a late wake-up does not add to the next one.
//
// The kernel wakes a sleeper some 10 to 60 us late, more on a busy machine. What a sleep overran is
// taken off the next ones. What the rank did between its sleeps, or beyond its time in a block, is
// not: that is what a rehearsal shows. Used by one thread.
#pragma once

#include <chrono>

#include "partitioner/base/units.h"

namespace stagecraft {

// The arithmetic alone.
class Deadlines {
 public:
  using Clock = std::chrono::steady_clock;

  void forget() { late_ = {}; }
  // When to wake for a block that began at `start` and takes `duration`.
  Clock::time_point of(Clock::time_point start, Nanos duration) const;
  // The block is over at `now`, after a sleep to its deadline, or without one because its own work
  // lasted beyond it.
  void ended(Clock::time_point start, Nanos duration, Clock::time_point now, bool slept);

 private:
  Clock::duration late_{};  // of all sleeps so far, not yet made up for
};

class Pace {
 public:
  // Sets the calling thread's timer slack (PR_SET_TIMERSLACK; 50 us by default) to the least.
  Pace();
  void begin_step() { deadlines_.forget(); }
  // Returns `duration` after `start`, which is when the block began.
  void sleep(Deadlines::Clock::time_point start, Nanos duration);

 private:
  Deadlines deadlines_;
};

}  // namespace stagecraft
