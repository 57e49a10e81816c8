// Runs a block's operations with LibTorch: the interpreter behind training, the VAE and the text
// encoder.
//
// Stateless functions; any thread, under the caller's grad mode. Every input and output is
// contiguous (NCHW), checked. Convolutions and linear layers go through one autograd function of
// our own that saves only what is needed: the input when a parameter needs a gradient, the weight
// when the input does.
#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// `inputs` by argument position ([N, ...shape of the value]), `params` by position in block.params.
// Returns the output [N, ...]. Throws InternalError on a shape that differs from the graph's,
// naming block and both shapes.
at::Tensor run_block(const Block& block, std::span<const at::Tensor> inputs,
                     std::span<const at::Tensor> params);

// Runs a frozen chain (VAE, text encoder) block by block without autograd; `params[i]` belong to
// block i.
at::Tensor run_chain(const BlockGraph& graph, const at::Tensor& input,
                     const std::vector<std::vector<at::Tensor>>& params);

at::ScalarType to_torch(DType dtype);

}  // namespace stagecraft
