// Which checkpoint a run goes on from, and what it must have in common with it.
#pragma once

#include <string>
#include <vector>

#include "models/weights/weight_source.h"
#include "pipeline/checkpoint/manifest.h"
#include "pipeline/train/job.h"

namespace stagecraft {

// A manifest of this run without files: what must be equal and what may differ. `weights` holds the
// parts that train; `data_identity` as for `run_rank`.
CheckpointManifest describe_run(const Job& job, const WeightSource& weights,
                                const std::string& data_identity);

// Throws ConfigError (4) that names each difference in what must be equal, with both values; and
// when the checkpoint has more steps than the run is to make. `folder` starts the message.
void require_same_run(const CheckpointManifest& checkpoint, const CheckpointManifest& run,
                      const Job& job, const std::string& folder);

struct ResumePoint {
  std::string folder;  // empty: from the beginning
  int64_t steps = 0;
};
// For --resume, in the launcher's process: verifies every byte, and says what is taken, what is
// damaged and what differs. Throws InputError(6) when there are checkpoints but none is whole, or
// the given one is not; ConfigError (4) as above; InputError(kIo).
ResumePoint choose_checkpoint(const Job& job, const CheckpointManifest& run);

// How many more checkpoints than those of the steps `on_disk` (newest first) OUT will hold at once,
// the one that is being written included, when a run with `from` steps done goes to its end.
int64_t most_new_checkpoints(const TrainOptions& options, int64_t from,
                             const std::vector<int64_t>& on_disk);

// Before the ranks start: later checkpoints of OUT, which are damaged or of a course of training
// that is left, are set aside as NAME.old, what a killed run left is removed. Throws
// InputError(kIo) when the disk is too small for the checkpoints to come.
void prepare_checkpoint_folder(const Job& job, const ResumePoint& from);

}  // namespace stagecraft
