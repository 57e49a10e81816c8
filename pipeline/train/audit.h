// Writes, for chosen steps, everything somebody needs to redo the step without this program.
//
// Each rank writes one file a step with what it has: the inputs it used, the trainable parameters
// it owns. Weights, gradients and moments go from where they live straight to the file, so the
// audit takes no tensor's memory; what it copies is the batch's inputs, outside of the tracked
// allocator (about 3.5 MiB a sample at 512 px). docs/audit.md lists the keys.
#pragma once

#include <functional>
#include <memory>

#include "pipeline/exec/rank_parameters.h"
#include "pipeline/train/job.h"
#include "pipeline/train/step_observer.h"

namespace stagecraft {

// The observer that `job.options` ask for: one that writes `audit_steps`, or one that looks away.
// Both arguments outlive it. `on_written` after each tensor. Its functions throw InputError(kIo)
// naming the file; no half-written file is left under its name.
std::unique_ptr<StepObserver> make_observer(const Job& job, int rank,
                                            const RankParameters& parameters,
                                            std::function<void()> on_written);

}  // namespace stagecraft
