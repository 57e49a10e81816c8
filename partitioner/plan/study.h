// What the planner saw beside the plan it chose: the front of step time against memory, and the
// other ways to train the same on the same devices. Informative: nothing is run from it.
//
// Plain values, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "partitioner/base/units.h"

namespace stagecraft {

// A plan that no other found plan beats in both step time and memory of the fullest rank.
struct FrontPoint {
  Nanos step;
  Bytes peak;        // predicted total of the fullest rank
  int replicas = 1;  // of the pipeline
  int stages = 1;    // of one replica
  int64_t micro_batch = 1;
  std::string schedule{};
  int recomputed = 0;   // blocks that run forward again in the backward pass
  bool relays = false;  // what later ranks need passes through those between
  bool is_chosen = false;
  bool operator==(const FrontPoint&) const = default;
};

// The same split with about twice as many micro-batches: half as large where they can be, else of
// twice the batch.
struct MoreMicroBatches {
  int64_t batch = 0, micro_batch = 0;  // samples; batch 0: nothing known
  double bubble = 0;
  bool operator==(const MoreMicroBatches&) const = default;
};

// The same training without this plan: one device, data parallel, sharded optimizer.
struct Alternative {
  std::string name{};   // "data parallel, done right"
  std::string how{};    // one line: what is held and sent
  Bytes memory;         // of the fullest device
  Bytes device_memory;  // what that device has
  Nanos step;
  Nanos exposed;  // part of the step: communication that hides behind nothing
  // Samples of a step where they are not the plan's batch; 0: they are.
  int64_t other_batch = 0;
  bool trains_the_same() const { return other_batch == 0; }
  bool fits() const { return memory.count <= device_memory.count; }
  bool operator==(const Alternative&) const = default;
};

}  // namespace stagecraft
