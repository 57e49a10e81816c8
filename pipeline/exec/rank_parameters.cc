#include "pipeline/exec/rank_parameters.h"

#include <ATen/ATen.h>

#include <set>
#include <span>

#include "partitioner/base/error.h"

namespace stagecraft {

RankParameters::RankParameters(const BlockGraph& graph, const Placement& placement, int rank,
                               const WeightSource& source, const std::function<void()>& on_read)
    : weights_(graph.blocks.size()), first_slot_(graph.blocks.size(), 0) {
  std::set<int> held, owned;
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (placement.rank_of_stage[static_cast<size_t>(stage)] != rank) continue;
    for (const int block : placement.blocks_run_by(graph, stage)) held.insert(block);
    for (const int block : placement.blocks_owned_by(graph, stage)) {
      held.insert(block);
      owned.insert(block);
    }
  }
  int64_t canonical = 0;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    const bool here = held.contains(static_cast<int>(b));
    first_slot_[b] = slots_.size();
    for (const Param& param : block.params) {
      ++canonical;
      if (!here) continue;
      ParameterSlot slot;
      slot.canonical = canonical - 1;
      slot.param = &param;
      slot.owned = owned.contains(static_cast<int>(b));
      slot.trainable = block.trainable;
      slot.trained = block.trainable && block.reaches_loss;
      slot.weight = at::empty(param.shape, at::kFloat);
      source.read(param, std::span(slot.weight.mutable_data_ptr<float>(),
                                   static_cast<size_t>(slot.weight.numel())));
      if (on_read) on_read();
      if (slot.trained) {
        slot.weight.set_requires_grad(true);
        slot.gradient = at::zeros(param.shape, at::kFloat);
        slot.exp_avg = at::zeros(param.shape, at::kFloat);
        slot.exp_avg_sq = at::zeros(param.shape, at::kFloat);
        slot.steps = at::zeros({}, at::kFloat);
      }
      weights_[b].push_back(slot.weight);
      slots_.push_back(std::move(slot));
    }
  }
}

const std::vector<at::Tensor>& RankParameters::weights_of(int block) const {
  return weights_[static_cast<size_t>(block)];
}

void RankParameters::add_gradient(int block, int position, const at::Tensor& gradient) {
  at::NoGradGuard no_grad;
  ParameterSlot& slot =
      slots_[first_slot_[static_cast<size_t>(block)] + static_cast<size_t>(position)];
  check(slot.trained, "a gradient arrived for a parameter that is not trained");
  if (slot.has_gradient) {
    slot.gradient.add_(gradient);
  } else {
    slot.gradient.copy_(gradient);
    slot.has_gradient = true;
  }
}

void RankParameters::clear_gradients() {
  for (ParameterSlot& slot : slots_) slot.has_gradient = false;
}

}  // namespace stagecraft
