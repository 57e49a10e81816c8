// One micro-batch through the blocks of one stage, by the rules of simulate/rank_replay.cc, without
// what depends on the other stages: how long a sent tensor waits, what arrives early.
//
// Holds scratch that is used again for stage after stage: one object a thread. The arguments must
// outlive it.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// What the replay reads of graph and costs, made once.
struct ReplayFacts {
  // Throws InternalError when `table` lacks a block.
  ReplayFacts(const BlockGraph& graph_in, const CostTable& table,
              const std::vector<int>& unit_of_block);

  const BlockGraph& graph;
  std::vector<const BlockCost*> costs;               // by block
  std::vector<int64_t> value_bytes;                  // of one micro-batch of the table's size
  std::vector<std::vector<int>> gradient_consumers;  // by value
  std::vector<bool> is_replicated;                   // by block
};

class StageReplay {
 public:
  explicit StageReplay(const ReplayFacts& facts);

  // `blocks` ascending, all of them reach the loss; `recompute` by block, or null for none.
  void load(const std::vector<int>& blocks, const std::vector<bool>* recompute);

  // Bytes between forward and backward.
  int64_t kept() const { return kept_; }
  // Bytes at the worst moment of the forward pass, of the backward pass.
  int64_t forward_peak();
  int64_t backward_peak();
  // Directed pairs of ranks that the stage surely talks on.
  int channels() const;

 private:
  struct ValueUse {
    int first_reader = -1, last_reader = -1;  // positions in the stage
    int first_keeper = -1;       // the first block that keeps it: last in the backward pass
    bool sent = false;           // read by a block that is not in the stage
    bool only_rebuilds = false;  // the first keeper wants it for running again only
    bool has_gradient = false;
  };

  static bool is_repeated(const Block& block, size_t argument);
  bool is_local(int value) const { return facts_.graph.values[value].producer < 0; }
  bool is_here(int value) const {
    return !is_local(value) && position_[facts_.graph.values[value].producer] >= 0;
  }
  bool is_received(int value) const { return !is_local(value) && !is_here(value); }
  bool outlives_forward(int value) const {
    return use_[value].first_keeper >= 0 || use_[value].sent || value == facts_.graph.output;
  }
  bool runs_again(int block) const {
    return recompute_ != nullptr && (*recompute_)[block] &&
           facts_.graph.blocks[block].state != BlockState::kF;
  }
  bool receives_gradient(int value) const;
  void touch(int value);
  void keep(int value, int position, bool rebuilds);
  void note_uses(int position);

  const ReplayFacts& facts_;
  std::vector<int> blocks_;
  const std::vector<bool>* recompute_ = nullptr;
  std::vector<int> position_;  // by block, -1: not in the stage
  std::vector<ValueUse> use_;  // by value; reset for those that were touched
  std::vector<bool> is_touched_;
  std::vector<int> touched_;
  bool has_backward_ = false, has_loss_ = false;
  int64_t kept_ = 0;
};

}  // namespace stagecraft
