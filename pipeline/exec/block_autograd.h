// The block is the unit of autograd: its forward starts from cut-off inputs, its backward is one
// engine call.
//
// So the arithmetic does not depend on where a model is cut, and what a block saved is freed when
// its backward is done. Stateless; the calling thread runs the work; different threads may work on
// different tensors.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <span>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// What the backward pass of one block run needs. Holds the autograd graph, hence the saved tensors,
// but neither the inputs nor the output, unless an operation saved them.
struct BlockTape {
  torch::autograd::Edge root;
  std::vector<torch::autograd::Edge> inputs;  // by argument position; invalid where not wanted
  std::vector<torch::autograd::Edge> params;  // by parameter position; invalid where frozen
};

struct BlockForward {
  at::Tensor output;  // detached, contiguous, [N, ...]
  BlockTape tape;     // the root is invalid when no backward pass will follow
};

// Which inputs of `block` carry a gradient, by argument position.
std::vector<bool> inputs_with_gradient(const BlockGraph& graph, const Block& block);

// Without autograd: nothing is kept.
at::Tensor forward_only(const Block& block, std::span<const at::Tensor> inputs,
                        std::span<const at::Tensor> params);

// For a block whose state is not F. `params` are leaves that require a gradient where they are
// trainable.
BlockForward forward_with_tape(const Block& block, std::span<const at::Tensor> inputs,
                               std::span<const at::Tensor> params,
                               const std::vector<bool>& wants_input_gradient);

struct BlockGradients {
  std::vector<at::Tensor> inputs;  // by argument position, contiguous; undefined where not wanted
  std::vector<at::Tensor> params;  // by parameter position; undefined where frozen
};

// B: consumes the tape; saved tensors are freed as the engine leaves them.
BlockGradients backward_block(BlockTape tape, const at::Tensor& output_gradient);
// I: gradients of inputs only; the tape and what it saved stay for W. Undefined `params`.
BlockGradients backward_inputs(const BlockTape& tape, const at::Tensor& output_gradient);
// W: gradients of parameters only, bitwise those of B; consumes the tape. Undefined `inputs`.
BlockGradients backward_weights(BlockTape tape, const at::Tensor& output_gradient);

}  // namespace stagecraft
