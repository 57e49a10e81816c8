// What a block keeps for its backward pass, operation by operation (table in docs/graph.md).
//
// The rules are LibTorch's autograd with our own for some: a convolution or linear layer keeps its
// input only for the gradient of its weight (stock autograd keeps a frozen convolution's input).
// Parameters that an
// operation keeps are not counted: they live anyway.
#include "partitioner/base/error.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {
namespace {

constexpr int64_t kStatisticBytes =
    4;  // means, deviations and log-sum-exps are fp32 in every precision

class SavedSet {
 public:
  explicit SavedSet(size_t tensors) : kept_(tensors, false) {}

  void keep(int tensor) { kept_[tensor] = true; }
  void keep_bytes(int64_t bytes) { extra_bytes_ += bytes; }
  void keep_statistics(int64_t count) { keep_bytes(count * kStatisticBytes); }

  SavedTensors take() const {
    SavedTensors saved{.tensors = {}, .extra_bytes = extra_bytes_};
    for (size_t i = 0; i < kept_.size(); ++i)
      if (kept_[i]) saved.tensors.push_back(static_cast<int>(i));
    return saved;
  }

 private:
  std::vector<bool> kept_;
  int64_t extra_bytes_ = 0;
};

// `op` requires a gradient: some input does, or it has parameters and the block is trainable.
void keep_for(const Block& block, const Op& op, AttentionKernel attention, SavedSet& saved) {
  const auto elements_over_last = [&](int tensor) {
    const LocalTensor& t = block.tensors[tensor];
    return t.elements() / t.shape.back();
  };
  switch (op.kind) {
    case OpKind::kConv2d:
    case OpKind::kLinear:
    case OpKind::kEmbedding:  // keeps the ids
      if (block.trainable) saved.keep(op.inputs[0]);
      return;
    case OpKind::kGroupNorm:  // mean and reciprocal deviation of each group
      saved.keep(op.inputs[0]);
      saved.keep_statistics(2 * op.ints[0]);
      return;
    case OpKind::kLayerNorm:  // the same of each row
      saved.keep(op.inputs[0]);
      saved.keep_statistics(2 * elements_over_last(op.inputs[0]));
      return;
    case OpKind::kSilu:
    case OpKind::kQuickGelu:
    case OpKind::kGeglu:  // ours: GELU of the gate is computed again, stock autograd keeps it
      saved.keep(op.inputs[0]);
      return;
    case OpKind::kAttention:  // q, k and v are views of their producers' outputs; all or none are
                              // kept
      if (attention == AttentionKernel::kMath) {
        if (block.tensors[op.inputs[2]].dtype == DType::kF32) saved.keep(op.inputs[2]);
        saved.keep_bytes(math_attention_bytes(block, op));
        return;
      }
      for (int input : op.inputs) saved.keep(input);
      saved.keep(op.output);
      saved.keep_statistics(op.ints[0] * block.tensors[op.output].shape[0]);
      return;
    case OpKind::kAdd:
    case OpKind::kAddPerChannel:
    case OpKind::kAddParameter:
    case OpKind::kConcatChannels:
    case OpKind::kUpsampleNearest2x:
    case OpKind::kPadRightBottom:
    case OpKind::kToSequence:
    case OpKind::kToImage:
    case OpKind::kTimestepEmbedding:
      return;
  }
  throw InternalError("saved_for_backward: unknown operation kind");
}

}  // namespace

int64_t score_bytes(const Block& block, const Op& op) {
  const int64_t queries = block.tensors[op.inputs[0]].shape[0];
  const int64_t keys = block.tensors[op.inputs[1]].shape[0];
  return op.ints[0] * queries * keys * size_of(DType::kF32);
}

int64_t math_attention_bytes(const Block& block, const Op& op) {
  int64_t copied = 0;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const LocalTensor& operand = block.tensors[op.inputs[i]];
    const bool is_scaled = i < 2;  // q and k, each by the root of the scale
    if (is_scaled || operand.dtype != DType::kF32) copied += operand.elements();
  }
  return score_bytes(block, op) + copied * size_of(DType::kF32);
}

SavedTensors saved_for_backward(const Block& block, const std::vector<bool>& input_carries_grad,
                                AttentionKernel attention) {
  check(input_carries_grad.size() == block.inputs.size(),
        "saved_for_backward: one flag for each input of the block");
  SavedSet saved(block.tensors.size());
  if (!block.reaches_loss) return saved.take();
  std::vector<bool> requires_grad(block.tensors.size(), false);
  for (size_t i = 0; i < input_carries_grad.size() && i < requires_grad.size(); ++i)
    requires_grad[i] = input_carries_grad[i];
  for (const Op& op : block.ops) {
    bool needed = block.trainable && !op.params.empty();
    for (int input : op.inputs) needed = needed || requires_grad[input];
    if (!needed) continue;
    requires_grad[op.output] = true;
    keep_for(block, op, attention, saved);
  }
  return saved.take();
}

}  // namespace stagecraft
