// Small hand-made graphs for tests: blocks of one operation over [8] vectors, named by a letter or
// word.
#pragma once

#include <string>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// Adds blocks in topological order; every block is a linear layer over its first input, after
// adding up the others. Inputs are names of earlier blocks or "input.<name>". The last block's
// output is the prediction.
class ToyGraph {
 public:
  ToyGraph& add(const std::string& name, const std::vector<std::string>& inputs, bool trainable) {
    Block block{.name = name, .part = "toy", .section = "toy"};
    block.trainable = trainable;
    block.params = {{.name = name + ".weight", .shape = {kWidth, kWidth}}};
    const auto new_tensor = [&block] {
      block.tensors.push_back({.shape = {kWidth}});
      return static_cast<int>(block.tensors.size()) - 1;
    };
    for (const std::string& input : inputs) {
      block.inputs.push_back(value_of(input));
      new_tensor();
    }
    int sum = 0;
    for (int i = 1; i < static_cast<int>(inputs.size()); ++i) {
      const int next = new_tensor();
      block.ops.push_back({.kind = OpKind::kAdd, .inputs = {sum, i}, .output = next});
      sum = next;
    }
    block.ops.push_back(
        {.kind = OpKind::kLinear, .inputs = {sum}, .output = new_tensor(), .params = {0}});
    block.output = new_value(name, static_cast<int>(graph_.blocks.size()));
    graph_.blocks.push_back(block);
    return *this;
  }

  // The graph with `output` (a block's name) as the prediction, states derived.
  BlockGraph build(const std::string& output) const {
    BlockGraph graph = graph_;
    graph.model = "toy";
    graph.width = graph.height = 64;
    graph.output = graph.blocks.at(graph.find_block(output)).output;
    derive_states(graph);
    return graph;
  }

 private:
  static constexpr int64_t kWidth = 8;

  int new_value(const std::string& name, int producer) {
    graph_.values.push_back({.name = name, .producer = producer, .shape = {kWidth}});
    return static_cast<int>(graph_.values.size()) - 1;
  }
  int value_of(const std::string& name) {
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].name == name) return static_cast<int>(v);
    return new_value(name, -1);
  }

  BlockGraph graph_;
};

}  // namespace stagecraft
