// The whole model on one device, as one stage: what the memory model and the simulator say of it.
//
// Pure functions, any thread.
#pragma once

#include <vector>

#include "partitioner/alternatives/training_job.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

// `samples` in micro-batches of the job's size (of `samples` when that is smaller), one after the
// other: frozen weights once and in half precision when training is mixed, nothing kept or computed
// for frozen parameters.
struct OneDevice {
  std::vector<int64_t> micro_batch_sizes;
  Schedule schedule;
  RankMemory memory;
  SimulatedStep step;
};
OneDevice on_one_device(const TrainingJob& job, int rank, int64_t samples);

// The rank whose device has the most memory, the first of several.
int largest_device(const Cluster& cluster);

}  // namespace stagecraft
