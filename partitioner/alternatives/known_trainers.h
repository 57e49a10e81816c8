// The same training as ldm and cldm do it on PyTorch Lightning: the account of plan/ddp.h, and on
// top of it an estimate of what depends on the batch, and of the step.
//
// What they do (lllyasviel/ControlNet: cldm/cldm.py, ldm/modules/attention.py,
// ldm/modules/diffusionmodules/util.py): fp32 parameters under automatic mixed precision; the whole
// batch of a device at once; every resnet and transformer checkpointed, so that it keeps its inputs
// and runs forward again; attention as two products with its scores in fp32 between them; frozen
// parameters keep requires_grad. Pure functions, any thread.
#pragma once

#include "partitioner/alternatives/training_job.h"
#include "partitioner/base/units.h"
#include "partitioner/plan/ddp.h"

namespace stagecraft {

// What comes on top of the static sum, at the peak: in the backward pass of one block.
struct KnownTrainersPeak {
  Bytes base;     // the device's context
  Bytes inputs;   // of all blocks that the backward pass goes through, and inside transformers the
                  // three tensors outside the checkpointed part
  Bytes rebuilt;  // by the block that runs again
  Bytes scores;   // of its attention: softmax, its gradient and that of its input; when mixed the
                  // half copy of the first
  Bytes slack;    // the device's fraction of the three
  Bytes total() const { return base + inputs + rebuilt + scores + slack; }
};
KnownTrainersPeak known_trainers_peak(const TrainingJob& job, int rank, int64_t samples);

struct KnownTrainer {
  int rank = 0;         // whose memory is nearest to its device's, or the furthest above
  int64_t samples = 1;  // of the fullest device, at once
  Bytes memory;         // of that rank
  Nanos step;           // a frozen block's weight gradients taken as long as its inputs'; fused
                        // attention's time: in truth it is longer
  Nanos exposed;
};
// On the largest device.
KnownTrainer known_trainer(const TrainingJob& job, const OtherParameters& other);
// `samples` on each of the first `devices`. DDP's reducer sums every parameter with requires_grad.
KnownTrainer known_data_parallel(const TrainingJob& job, const OtherParameters& other, int devices,
                                 int64_t samples);

}  // namespace stagecraft
