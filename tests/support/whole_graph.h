// The training graph as one autograd graph: what single-device training in one piece computes.
// Shares the operations with the executor, and nothing of how it cuts, folds, sends or scales.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <string>
#include <vector>

#include "models/torch/runner.h"
#include "models/weights/weight_source.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

using TensorMap = std::map<std::string, at::Tensor>;
using BlockTensors = std::vector<std::vector<at::Tensor>>;  // by block, by parameter

// Makes leaves of the parameters that a gradient reaches.
inline void require_gradients(const BlockGraph& graph, BlockTensors& params) {
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    for (at::Tensor& p : params[b]) p.set_requires_grad(block.trainable && block.reaches_loss);
  }
}

inline BlockTensors read_weights(const BlockGraph& graph, const WeightSource& source) {
  BlockTensors params;
  for (const Block& block : graph.blocks) {
    params.emplace_back();
    for (const Param& param : block.params) {
      at::Tensor weight = at::empty(param.shape, at::kFloat);
      source.read(param, {weight.mutable_data_ptr<float>(), static_cast<size_t>(weight.numel())});
      params.back().push_back(std::move(weight));
    }
  }
  return params;
}

class WholeGraph {
 public:
  // Runs it forward. `inputs` by name without "input.", [N, ...].
  WholeGraph(const BlockGraph& graph, const BlockTensors& params, const TensorMap& inputs)
      : graph_(graph), values_(graph.values.size()) {
    for (size_t v = 0; v < values_.size(); ++v) {
      const std::string& name = graph.values[v].name;
      if (graph.values[v].producer < 0) values_[v] = inputs.at(name.substr(name.find('.') + 1));
    }
    for (size_t b = 0; b < graph.blocks.size(); ++b) {
      const Block& block = graph.blocks[b];
      if (!block.reaches_loss) continue;
      std::vector<at::Tensor> arguments;
      for (const int value : block.inputs) arguments.push_back(values_[static_cast<size_t>(value)]);
      values_[static_cast<size_t>(block.output)] = run_block(block, arguments, params[b]);
    }
  }

  const at::Tensor& prediction() const { return values_[static_cast<size_t>(graph_.output)]; }
  const at::Tensor& value(const std::string& block) const {
    return values_.at(static_cast<size_t>(graph_.blocks.at(graph_.find_block(block)).output));
  }

 private:
  const BlockGraph& graph_;
  std::vector<at::Tensor> values_;
};

// Of every parameter that requires one, by name: one backward call.
inline TensorMap gradients_of(const at::Tensor& loss, const BlockGraph& graph,
                              const BlockTensors& params) {
  std::vector<std::string> names;
  std::vector<at::Tensor> leaves;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    for (size_t p = 0; p < params[b].size(); ++p) {
      if (!params[b][p].requires_grad()) continue;
      names.push_back(graph.blocks[b].params[p].name);
      leaves.push_back(params[b][p]);
    }
  }
  const std::vector<at::Tensor> gradients = torch::autograd::grad({loss}, leaves);
  TensorMap result;
  for (size_t i = 0; i < names.size(); ++i) result.emplace(names[i], gradients[i]);
  return result;
}

inline double l2(const at::Tensor& t) { return t.to(at::kDouble).norm().item<double>(); }

// L2 of the difference, relative to the reference.
inline double l2_distance(const at::Tensor& ours, const at::Tensor& theirs) {
  EXPECT_EQ(ours.sizes(), theirs.sizes());
  if (ours.sizes() != theirs.sizes()) return 1.0;
  return l2(ours.to(at::kDouble) - theirs.to(at::kDouble)) / l2(theirs);
}

// The same parameters have a gradient, each within `bound` of the reference (relative L2). Returns
// the largest distance.
inline double expect_close_gradients(const TensorMap& ours, const TensorMap& theirs, double bound) {
  double worst = 0.0;
  for (const auto& [name, gradient] : ours) {
    const auto other = theirs.find(name);
    if (other == theirs.end()) {
      ADD_FAILURE() << name << " has no gradient in the reference";
      continue;
    }
    const double distance = l2_distance(gradient, other->second);
    EXPECT_LE(distance, bound) << name;
    worst = std::max(worst, distance);
  }
  for (const auto& [name, gradient] : theirs) {
    EXPECT_TRUE(ours.contains(name)) << name << " has no gradient here";
  }
  return worst;
}

}  // namespace stagecraft
