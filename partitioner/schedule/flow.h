// What flows between stages in one micro-batch, derived from graph and placement.
//
// The one place that knows the rules of docs/schedule.md (who needs which value, how a gradient
// folds); order generators, message insertion, verifier, memory model and executor all read it.
// Plain values, any thread.
#pragma once

#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

// A value (forward) or its partial gradient (backward) that one stage's action hands to another
// stage's.
struct Hop {
  int value = -1;
  int from_stage = -1, to_stage = -1;
  bool operator==(const Hop&) const = default;
};

struct Flow {
  std::vector<std::vector<int>> blocks;  // per stage, ascending: what F runs
  std::vector<bool> has_backward;        // per stage: a block whose state is not F
  int loss_stage = -1;                   // computes the prediction and its loss
  std::vector<Hop> forward;              // by (value, to_stage); rank boundaries not yet looked at
  std::vector<Hop> backward;             // by (value, falling from_stage): the fold of every value
  // Per stage s: stages whose F (whose B) must have run before F(s) (before B(s)), ascending, s
  // left out.
  std::vector<std::vector<int>> forward_needs, backward_needs;
};

Flow derive_flow(const BlockGraph& graph, const Placement& placement);

// By value: how often one micro-batch uses it on `rank`, by the blocks that run there, the loss and
// the messages that send it. A value is freed at its last use: the executor frees by these numbers
// and the memory model replays them.
std::vector<int> uses_on_rank(const BlockGraph& graph, const Placement& placement,
                              const Schedule& schedule, int rank);

}  // namespace stagecraft
