#include "pipeline/exec/autograd_runner.h"

#include <utility>

#include "partitioner/base/error.h"
#include "pipeline/exec/block_autograd.h"

namespace stagecraft {
namespace {

struct KeptTape final : KeptByBlock {
  explicit KeptTape(BlockTape the_tape) : tape(std::move(the_tape)) {}
  BlockTape tape;
};

const BlockTape& tape_of(const KeptByBlock& kept) {
  const auto* tape = dynamic_cast<const KeptTape*>(&kept);
  check(tape != nullptr, "what a block kept is another runner's");
  return tape->tape;
}

// Out of its box: saved tensors are freed as the engine leaves them.
BlockTape take_tape(std::unique_ptr<KeptByBlock> kept) {
  auto* tape = dynamic_cast<KeptTape*>(kept.get());
  check(tape != nullptr, "what a block kept is another runner's");
  return std::move(tape->tape);
}

}  // namespace

at::Tensor AutogradRunner::forward_only(int block, std::span<const at::Tensor> inputs) {
  return stagecraft::forward_only(block_at(block), inputs, parameters_.weights_of(block));
}

BlockRunner::Forward AutogradRunner::forward(int block, std::span<const at::Tensor> inputs) {
  BlockForward result = forward_with_tape(block_at(block), inputs, parameters_.weights_of(block),
                                          inputs_with_gradient(graph_, block_at(block)));
  return {.output = std::move(result.output),
          .kept = std::make_unique<KeptTape>(std::move(result.tape))};
}

BlockRunner::InputGradients AutogradRunner::backward(int block, std::unique_ptr<KeptByBlock> kept,
                                                     const at::Tensor& output_gradient) {
  BlockGradients result = backward_block(take_tape(std::move(kept)), output_gradient);
  add_to_parameters(block, std::move(result.params));
  return std::move(result.inputs);
}

BlockRunner::InputGradients AutogradRunner::backward_inputs(int /*block*/, const KeptByBlock& kept,
                                                            const at::Tensor& output_gradient) {
  return stagecraft::backward_inputs(tape_of(kept), output_gradient).inputs;
}

void AutogradRunner::backward_weights(int block, std::unique_ptr<KeptByBlock> kept,
                                      const at::Tensor& output_gradient) {
  add_to_parameters(
      block, stagecraft::backward_weights(take_tape(std::move(kept)), output_gradient).params);
}

void AutogradRunner::add_to_parameters(int block, std::vector<at::Tensor> gradients) {
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    parameters_.add_gradient(block, static_cast<int>(i), std::exchange(gradients[i], {}));
  }
}

}  // namespace stagecraft
