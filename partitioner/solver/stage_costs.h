// What one stage costs on one kind of device, whatever the other stages are: its time, and a lower
// bound of its rank's memory.
//
// The bound replays one micro-batch through the stage as the memory model does, on top of the
// micro-batches that are in flight beside it, and leaves out what depends on the other stages (how
// long a sent tensor waits, what arrives early). It is never above `predict_memory` (a property
// test holds them together). Immutable after construction; any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"
#include "partitioner/solver/down_sets.h"
#include "partitioner/solver/stage_replay.h"

namespace stagecraft {

struct StageCost {
  int64_t forward = 0, backward = 0;  // ns of one micro-batch of the table's size
  int64_t fixed = 0;                  // bytes: weights, gradients, masters, optimizer
  int64_t in_flight = 0;              // bytes one more micro-batch in flight adds
  // Bytes of the running micro-batch at its worst moment, what it keeps included.
  int64_t forward_peak = 0, backward_peak = 0;
  int channels = 0;  // directed pairs of ranks it talks on, at least
  bool has_backward = false;
  int64_t time() const { return forward + backward; }
};

class StageCosts {
 public:
  // The arguments must outlive the object. Throws InternalError when `costs` lacks a block.
  StageCosts(const BlockGraph& graph, const UnitOrder& order, const CostTable& costs);

  // `replay`: scratch of the calling thread. `recompute` by block, or null for none; times are
  // without running again.
  StageCost of(const UnitSet& units, StageReplay& replay,
               const std::vector<bool>* recompute = nullptr) const;
  StageReplay make_replay() const { return StageReplay(facts_); }

  // Time of the unit's blocks, replicated ones left out.
  int64_t unit_forward(int unit) const { return unit_forward_[unit]; }
  int64_t unit_backward(int unit) const { return unit_backward_[unit]; }
  bool unit_has_backward(int unit) const { return unit_has_backward_[unit]; }
  // Blocks that a stage of these units runs, ascending: replicated ones it needs included.
  std::vector<int> blocks_run(const UnitSet& units) const;
  // Weights, gradients, master weights and optimizer state of one block.
  int64_t fixed_bytes(int block) const;
  // Fixed bytes and what the block alone keeps for one micro-batch.
  int64_t footprint(int block) const;

  // Running a block again takes `time` and frees at most `bytes` of what a micro-batch keeps.
  struct Rerun {
    int block = -1;
    int64_t time = 0, bytes = 0;
  };
  // Of the blocks of a stage that can run again, most bytes per time first.
  std::vector<Rerun> reruns(const UnitSet& units) const;

 private:
  const BlockGraph& graph_;
  const UnitOrder& order_;
  const CostTable& costs_;
  ReplayFacts facts_;
  std::vector<UnitSet> replicated_for_;  // by replicated block: units that need it
  std::vector<int64_t> unit_forward_, unit_backward_;
  std::vector<Rerun> reruns_;  // most bytes per time first
  std::vector<bool> unit_has_backward_;
};

// The moments of a step that can be a stage's worst: how many samples are in flight beside the
// micro-batch that runs, and how many that one has.
struct StageContext {
  struct Moment {
    int64_t others = 0, running = 0;
  };
  std::vector<Moment> forward;
  Moment backward;
  int64_t micro_batch = 1;  // samples that the cost table was made for

  int64_t most_in_flight() const;  // samples
};
StageContext stage_context(const std::string& schedule, int stage, int stages,
                           const std::vector<int64_t>& micro_batch_sizes, int64_t micro_batch);
int64_t memory_bound(const StageCost& cost, const StageContext& context, const Device& device);
// By how many bytes the block's running again lowers that bound at most: its bytes for every sample
// in flight, the slack on them, and what rounding may hide.
double most_freed(const StageCosts::Rerun& rerun, const StageContext& context,
                  const Device& device);

}  // namespace stagecraft
