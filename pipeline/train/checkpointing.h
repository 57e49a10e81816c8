// When a training saves, and how its ranks agree that a checkpoint is whole.
//
// A save begins between two steps with a copy; each rank's thread writes its part; when all ranks
// have said at the end of a step that theirs is on the disk, rank 0 commits. Used by the rank's
// thread; all ranks call the collective functions at the same points. docs/checkpoints.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "pipeline/checkpoint/manifest.h"
#include "pipeline/checkpoint/part_writer.h"
#include "pipeline/exec/rank_parameters.h"
#include "pipeline/train/job.h"
#include "pipeline/train/loop_control.h"

namespace stagecraft {

class Checkpointing {
 public:
  // `common`: a manifest without steps and files. All but it outlive this.
  Checkpointing(const Job& job, const RankParameters& parameters, CheckpointManifest common,
                LoopControl& control);

  // Of the save under way, if any: whether this rank's part is on the disk; told to all ranks with
  // the facts of a step. Throws InputError(kIo) when the part, or on rank 0 the commit of the
  // checkpoint before, could not be written.
  bool part_written();
  // Collective, after the facts of the step that made `steps` of them were exchanged: commits what
  // `all_written` says is whole, and begins a save when one is due or `asked` for and the training
  // goes on.
  // Blocks for the copy; and for the save before, if that is still under way. Throws as above.
  void end_of_step(int64_t steps, bool all_written, bool goes_on, bool asked);
  // Collective, after the last step: there is a checkpoint of `steps` steps when it returns. Rank 0
  // says what all of them took. Unless checkpoints are wanted, only completes one that was asked
  // for.
  void finish(int64_t steps);

 private:
  using Clock = std::chrono::steady_clock;

  void begin(int64_t steps);
  void complete();
  void settle_commit();

  const Job& job_;
  const RankParameters& parameters_;
  CheckpointManifest common_;
  LoopControl& control_;
  const std::string root_;
  int64_t under_way_ = 0;  // steps of the save that is being written; 0: none
  int64_t saved_ = -1;     // of the last one that is complete on all ranks
  int64_t saves_ = 0, saves_in_training_ = 0;
  double held_seconds_ = 0, longest_seconds_ = 0;
  Clock::time_point begun_;
  PartWriter writer_;
  std::future<double> commit_;  // rank 0: seconds since the save began
};

}  // namespace stagecraft
