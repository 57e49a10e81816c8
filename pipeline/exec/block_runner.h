// What the executor asks of a block: run forward, keep what the backward pass needs, run backward.
//
// The executor moves values and gradients between blocks and ranks and knows nothing else of them,
// nor of parameters: those belong to the runner. `AutogradRunner` runs the real ones. Owned and
// used by the executor's thread. `block` is an index into the graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <vector>

namespace stagecraft {

// What one run of a block keeps for its backward pass; freed with this object.
class KeptByBlock {
 public:
  virtual ~KeptByBlock() = default;
};

class BlockRunner {
 public:
  struct Forward {
    at::Tensor output;  // contiguous, [N, ...]
    std::unique_ptr<KeptByBlock> kept;
  };

  virtual ~BlockRunner() = default;

  // A training step starts: the parameters' gradients of the last one are forgotten.
  virtual void begin_step() = 0;

  // Contiguous output; nothing is kept.
  virtual at::Tensor forward_only(int block, std::span<const at::Tensor> inputs) = 0;
  // For a block whose state is not F.
  virtual Forward forward(int block, std::span<const at::Tensor> inputs) = 0;

  // Gradients of the inputs by argument position, contiguous; undefined where not wanted. Gradients
  // of parameters are added to those of the step.
  using InputGradients = std::vector<at::Tensor>;
  // B.
  virtual InputGradients backward(int block, std::unique_ptr<KeptByBlock> kept,
                                  const at::Tensor& output_gradient) = 0;
  // I: gradients of inputs only; what was kept stays for W.
  virtual InputGradients backward_inputs(int block, const KeptByBlock& kept,
                                         const at::Tensor& output_gradient) = 0;
  // W: gradients of parameters only, bitwise those of B.
  virtual void backward_weights(int block, std::unique_ptr<KeptByBlock> kept,
                                const at::Tensor& output_gradient) = 0;
};

}  // namespace stagecraft
