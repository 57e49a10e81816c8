// The parameters that live on one rank: weights, and for trained ones gradient and Adam moments.
//
// Owned by the rank's executor, used by its thread only. A parameter without a path to the loss is
// held and saved but has neither gradient nor moments: its gradient is None, not zero, so that
// weight decay does not touch it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "models/weights/weight_source.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"

namespace stagecraft {

struct ParameterSlot {
  // Position among all parameters of the graph: the order in which norms are summed.
  int64_t canonical = 0;
  const Param* param = nullptr;
  bool owned = false;  // this rank saves it (a replicated block is owned once)
  bool trainable = false;
  bool trained = false;  // trainable, and its block reaches the loss
  at::Tensor weight;     // [shape] fp32; requires a gradient when trained
  at::Tensor gradient;   // sum over the step's micro-batches so far; defined when trained
  at::Tensor exp_avg, exp_avg_sq, steps;  // Adam; defined when trained
  bool has_gradient = false;              // a gradient has arrived in this step
};

class RankParameters {
 public:
  // Reads the weights of every block that `rank` runs or owns; `on_read` after each. `graph` must
  // outlive this object.
  RankParameters(const BlockGraph& graph, const Placement& placement, int rank,
                 const WeightSource& source, const std::function<void()>& on_read = {});

  // By parameter position in the block; empty for a block that is not here.
  const std::vector<at::Tensor>& weights_of(int block) const;
  // Adds one micro-batch's gradient; the first of a step replaces what was there.
  void add_gradient(int block, int position, const at::Tensor& gradient);
  // Forgets the step's gradients (memory stays).
  void clear_gradients();

  std::vector<ParameterSlot>& slots() { return slots_; }  // ascending canonical position
  const std::vector<ParameterSlot>& slots() const { return slots_; }

 private:
  std::vector<ParameterSlot> slots_;
  std::vector<std::vector<at::Tensor>> weights_;  // by block
  std::vector<size_t> first_slot_;                // by block
};

}  // namespace stagecraft
