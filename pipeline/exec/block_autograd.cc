#include "pipeline/exec/block_autograd.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "models/torch/runner.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// Where gradients leave a block. A leaf tensor would do, but the engine's accumulator of a leaf
// holds the tensor, and with it the input's memory, even when no operation saved it.
struct BlockEntry final : Node {
  variable_list apply(variable_list&&) override {
    throw InternalError("a block's entry node is captured by the engine, never run");
  }
};

// Contiguous and alone in its storage: a slice would keep the whole gradient it was cut from.
at::Tensor compact(const at::Tensor& gradient) {
  at::Tensor result = gradient.contiguous();
  if (result.storage().nbytes() != result.nbytes()) result = result.clone();
  return result;
}

}  // namespace

std::vector<bool> inputs_with_gradient(const BlockGraph& graph, const Block& block) {
  std::vector<bool> wanted;
  for (const int value : block.inputs) {
    wanted.push_back(graph.values[static_cast<size_t>(value)].carries_grad);
  }
  return wanted;
}

at::Tensor forward_only(const Block& block, std::span<const at::Tensor> inputs,
                        std::span<const at::Tensor> params) {
  at::NoGradGuard no_grad;
  return run_block(block, inputs, params);
}

BlockForward forward_with_tape(const Block& block, std::span<const at::Tensor> inputs,
                               std::span<const at::Tensor> params,
                               const std::vector<bool>& wants_input_gradient) {
  at::AutoGradMode with_grad(true);
  BlockForward result;
  std::vector<at::Tensor> entries;
  for (size_t i = 0; i < inputs.size(); ++i) {
    at::Tensor entry = inputs[i].variable_data();
    Edge edge;
    if (wants_input_gradient[i]) {
      auto node = std::shared_ptr<Node>(new BlockEntry, torch::autograd::deleteNode);
      torch::autograd::set_history(entry, node);
      edge = torch::autograd::impl::gradient_edge(entry);
    }
    result.tape.inputs.push_back(std::move(edge));
    entries.push_back(std::move(entry));
  }
  const at::Tensor output = run_block(block, entries, params);
  check(output.requires_grad(), "a block that needs a backward pass has an output without history");
  result.tape.root = torch::autograd::impl::gradient_edge(output);
  for (const at::Tensor& param : params) {
    result.tape.params.push_back(param.requires_grad() ? torch::autograd::impl::gradient_edge(param)
                                                       : Edge());
  }
  result.output = output.variable_data();
  return result;
}

namespace {

struct Wanted {
  bool inputs, params;
};

BlockGradients run_backward(const BlockTape& tape, torch::autograd::edge_list roots,
                            const at::Tensor& output_gradient, Wanted wanted) {
  torch::autograd::edge_list edges;
  const auto collect = [&edges](const std::vector<Edge>& from) {
    for (const Edge& edge : from) {
      if (edge.is_valid()) edges.push_back(edge);
    }
  };
  if (wanted.inputs) collect(tape.inputs);
  if (wanted.params) collect(tape.params);
  BlockGradients result{.inputs = std::vector<at::Tensor>(tape.inputs.size()),
                        .params = std::vector<at::Tensor>(tape.params.size())};
  if (edges.empty()) return result;
  const bool tape_stays = !wanted.params;
  variable_list gradients = torch::autograd::Engine::get_default_engine().execute(
      roots, {output_gradient}, /*keep_graph=*/tape_stays, /*create_graph=*/false,
      /*accumulate_grad=*/false, edges);
  size_t next = 0;
  const auto hand_out = [&](const std::vector<Edge>& from, std::vector<at::Tensor>& to) {
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].is_valid()) to[i] = compact(std::exchange(gradients[next++], {}));
    }
  };
  if (wanted.inputs) hand_out(tape.inputs, result.inputs);
  if (wanted.params) hand_out(tape.params, result.params);
  return result;
}

}  // namespace

BlockGradients backward_block(BlockTape tape, const at::Tensor& output_gradient) {
  return run_backward(tape, {std::move(tape.root)}, output_gradient,
                      {.inputs = true, .params = true});
}

BlockGradients backward_inputs(const BlockTape& tape, const at::Tensor& output_gradient) {
  return run_backward(tape, {tape.root}, output_gradient, {.inputs = true, .params = false});
}

BlockGradients backward_weights(BlockTape tape, const at::Tensor& output_gradient) {
  return run_backward(tape, {std::move(tape.root)}, output_gradient,
                      {.inputs = false, .params = true});
}

}  // namespace stagecraft
