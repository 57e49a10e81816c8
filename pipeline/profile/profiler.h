// Measures every block of a graph on this machine: the *measured* maker of a cost table.
//
// Runs in the calling thread with LibTorch's current number of threads; installs the tracking
// allocator and must be the only user of LibTorch in the process while it runs. Blocks of equal
// shape are measured once.
#pragma once

#include <functional>
#include <string>

#include "partitioner/cost/cost_table.h"
#include "partitioner/graph/graph.h"
#include "partitioner/plan/train_config.h"

namespace stagecraft {

struct ProfileOptions {
  int warm_up = 1;      // runs that are not counted
  int repetitions = 5;  // runs of which median and quartiles are taken
  std::function<void(int done, int all)> on_progress;  // distinct blocks
};

// How far the times can be trusted: whether other programs wanted the cores as well.
struct ProfileQuality {
  double waiting = 0;  // share of the counted runs' wall time without a core; 0 for several threads
  double spread = 0;   // half the distance between the quartiles ÷ median, of all blocks together
};
// One line without an end that names both figures and says what to do; empty when the machine was
// quiet.
std::string busy_warning(const ProfileQuality& quality);

struct Profile {
  CostTable table;
  ProfileQuality quality;
};

// Times: forward, backward by inputs and by weights in the block's state, with the addition to the
// gradient buffers that the executor makes. Of one thread it is the thread's processor time, what a
// rank needs that has a core to itself; of several it is wall time. Bytes: what the allocator saw.
// Only fp32 can be measured on a CPU: ConfigError otherwise.
Profile measure_blocks(const BlockGraph& graph, const TrainConfig& train,
                       const ProfileOptions& options);

// "AMD EPYC 7B13, 2 threads, LibTorch 2.11.0": where a table or a benchmark was made.
std::string describe_machine();

}  // namespace stagecraft
