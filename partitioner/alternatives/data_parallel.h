// The whole model on every device, each with a part of the batch, gradients summed over a ring
// while the backward pass runs: data parallel (DDP) and the sharded optimizer (ZeRO-2), both done
// right.
//
// Pure functions, any thread.
#pragma once

#include "partitioner/alternatives/training_job.h"
#include "partitioner/base/units.h"
#include "partitioner/simulate/memory_model.h"

namespace stagecraft {

struct DataParallel {
  int devices = 1;      // that have a sample
  int64_t samples = 1;  // of the fullest of them: batch / devices, rounded up
  int rank = 0;         // whose memory is nearest to its device's, or the furthest above
  RankMemory memory;    // of that rank
  Nanos step;
  Nanos exposed;  // part of the step: communication after all computing is over
};

// Gradients are views of the buckets (no second copy) and are summed once a step, in the backward
// pass of the last micro-batch, bucket by bucket, last block first.
DataParallel data_parallel(const TrainingJob& job);

// ZeRO stage 2 (Rajbhandari et al., "ZeRO: Memory optimizations toward training trillion parameter
// models", 2020): each device keeps 1/n of gradients, master weights and moments. So the gradients
// of *every* micro-batch have to be scattered (DeepSpeed does so too), and the weights that were
// trained are gathered after the step, which nothing hides.
DataParallel sharded_optimizer(const TrainingJob& job);

}  // namespace stagecraft
