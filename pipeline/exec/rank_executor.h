// Runs one rank's action list: the part of a training step between the samples and the optimizer.
//
// Owned and used by one thread. What it sends and receives is what the plan's message table says,
// in list order. Values and gradients are freed as soon as nobody on this rank needs them.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "partitioner/base/units.h"
#include "pipeline/comm/communicator.h"
#include "pipeline/data/samples.h"
#include "pipeline/exec/action_times.h"
#include "pipeline/exec/block_runner.h"
#include "pipeline/exec/execution_plan.h"
#include "pipeline/exec/step_data.h"

namespace stagecraft {

// What the rank held at the moment of its largest allocation in a step; parts of the tracking
// allocator's figure.
struct PeakMemory {
  Bytes total;      // everything allocated
  Bytes boundary;   // of it: received and not yet used, or handed to a send that is not over
  Bytes recompute;  // of it: rebuilt by blocks that ran again and have not finished their backward
  Bytes workspace;  // of it: taken inside the block that ran and given back
};

struct StepOutput {
  std::vector<float> sample_losses;  // in batch order; on the rank of the last stage only
  PeakMemory peak;                   // meaningful when the process holds one rank
  Nanos busy;                        // time inside blocks
  Nanos busy_cpu;                    // of it: this thread on a core, not waiting for one
};

enum class RunMode {
  kTrain,     // gradients into the parameters
  kEvaluate,  // forwards and their messages only
};

class RankExecutor {
 public:
  // All but `rank` outlive this.
  RankExecutor(const ExecutionPlan& plan, int rank, BlockRunner& blocks, Communicator& comm,
               SampleSource& samples);
  ~RankExecutor();

  // Runs the rank's actions of one step up to its kStep. After kTrain the runner has the gradients
  // of the parameters. `draws` is the global batch, the same on every rank; `step` tags the
  // messages. Blocks. Throws CommError, InternalError; afterwards the executor is of no use.
  StepOutput run(RunMode mode, int64_t step, std::span<const Draw> draws);

  // All may be changed between steps; the functions are called by the thread that runs them.
  // Called before an action starts, with its index in the rank's list: for progress and flight
  // records.
  std::function<void(const Action& action, int index)> on_action;
  // Called with kSend or kReceive before the rank waits for a peer, and with the action's own kind
  // when it goes on.
  std::function<void(ActionKind)> on_activity;
  OnData on_data;
  // Where to note when the actions ran, as long as the rank's list; none: nowhere.
  ActionTimes* times = nullptr;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace stagecraft
