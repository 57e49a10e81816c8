// What a stage's place in the pipeline says about the step: lower bounds of its simulated time.
//
// For stages that follow each other in a line (each needs the one before it, forward and backward;
// docs/search.md, "The bound"). f, b: forward and backward of stage s for micro-batch j; m
// micro-batches; K = min(m, p - s) of them in flight under 1F1B, m under GPipe. Then no simulation
// ends before
//   (1) the way to s, all work of s, and the way back from s;
//   (2) the way to s, its forwards and the m - K backwards between them, then the last micro-batch
//       from s to the loss and all the way back;
//   (3) the first micro-batch through everything and back to s, the other backwards of s and the
//       m - K forwards between them, and the way back from s.
// Pure functions, any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace stagecraft {

// Sizes of a step's micro-batches, and how many of them a stage has in flight. All but the last are
// equal.
struct Pace {
  int64_t count = 1;              // m
  int64_t first = 1, last = 1;    // samples
  int64_t table_micro_batch = 1;  // samples that times are for

  static Pace of(const std::vector<int64_t>& sizes, int64_t table_micro_batch);
  // As the simulator scales: up to the next nanosecond.
  int64_t first_of(int64_t time) const { return scaled(time, first); }
  int64_t last_of(int64_t time) const { return scaled(time, last); }
  int64_t all_of(int64_t time) const { return (count - 1) * first_of(time) + last_of(time); }
  // Down to the nanosecond: of sums, never more than the sum of the scaled parts.
  int64_t floor_first(int64_t time) const { return time * first / table_micro_batch; }
  int64_t floor_last(int64_t time) const { return time * last / table_micro_batch; }

 private:
  int64_t scaled(int64_t time, int64_t samples) const {
    return (time * samples + table_micro_batch - 1) / table_micro_batch;
  }
};

// The parts of (1), (2), (3) that are the stage's own.
struct StageWork {
  int64_t first_forward = 0, last_forward = 0, first_backward = 0, last_backward = 0;
  int64_t all = 0;          // (1)
  int64_t until_last = 0;   // (2): everything up to the start of the last forward
  int64_t after_first = 0;  // (3): everything after the end of the first backward
  bool has_backward = false;
};
// `forward`, `backward`: of one micro-batch of the table's size. `in_flight`: K.
StageWork stage_work(const Pace& pace, int64_t in_flight, int64_t forward, int64_t backward,
                     bool has_backward);

}  // namespace stagecraft
