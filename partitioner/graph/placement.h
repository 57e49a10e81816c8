// Which block runs on which stage, and which rank hosts which stage.
//
// Plain values, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

struct Placement {
  // Stage of each block, by block index; stages are numbered along the pipeline, 0 first.
  // A replicated block has -1: it runs on every stage that needs its output.
  std::vector<int> stage_of_block{};
  // Rank of each stage; a rank may host several.
  std::vector<int> rank_of_stage{};
  // Blocks whose forward is run again in the backward pass instead of keeping what it saved; by
  // block index.
  std::vector<bool> recompute{};
  // What a further stage needs goes from stage to stage, gradients back by those that have a
  // backward pass. False: straight to it.
  bool relays = false;

  int stages() const { return static_cast<int>(rank_of_stage.size()); }
  int ranks() const;
  // Blocks that run on `stage`, ascending, replicated ones included, blocks without a path to the
  // loss left out.
  std::vector<int> blocks_run_by(const BlockGraph& graph, int stage) const;
  std::vector<std::vector<int>> blocks_by_stage(const BlockGraph& graph) const;  // of every stage
  // Blocks whose parameters `stage` owns (and saves): as above with blocks that never run, without
  // replicated ones unless `stage` is the first that needs it.
  std::vector<int> blocks_owned_by(const BlockGraph& graph, int stage) const;
  bool operator==(const Placement&) const = default;
};

// One line per fault, each naming the blocks and stages concerned; empty when the placement can
// run: every block on a stage or replicated; no edge against the stage order; replicated blocks
// frozen, fed by local inputs only; no empty stage; ranks 0..n-1 all used, each by one stage where
// values are relayed; and the gradient fold of every value goes along the schedule (the stages of
// its gradient consumers do not decrease with block position, see docs/schedule.md).
std::vector<std::string> placement_faults(const BlockGraph& graph, const Placement& placement);

}  // namespace stagecraft
