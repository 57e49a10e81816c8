// Checks a block graph and derives what follows from its blocks, edges and trainable flags.
#include <fmt/format.h>

#include <unordered_set>

#include "partitioner/base/error.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {
namespace {

[[noreturn]] void fault(const std::string& what) { throw InternalError("block graph: " + what); }

struct Arity {
  size_t inputs, min_params, max_params, ints;
};

Arity arity_of(OpKind kind) {
  switch (kind) {
    case OpKind::kConv2d:
      return {1, 1, 2, 2};
    case OpKind::kLinear:
      return {1, 1, 2, 0};
    case OpKind::kGroupNorm:
      return {1, 2, 2, 1};
    case OpKind::kLayerNorm:
      return {1, 2, 2, 0};
    case OpKind::kAdd:
    case OpKind::kAddPerChannel:
    case OpKind::kConcatChannels:
      return {2, 0, 0, 0};
    case OpKind::kAddParameter:
    case OpKind::kEmbedding:
      return {1, 1, 1, 0};
    case OpKind::kToImage:
      return {1, 0, 0, 2};
    case OpKind::kAttention:
      return {3, 0, 0, 2};
    case OpKind::kTimestepEmbedding:
      return {1, 0, 0, 1};
    case OpKind::kSilu:
    case OpKind::kQuickGelu:
    case OpKind::kGeglu:
    case OpKind::kUpsampleNearest2x:
    case OpKind::kPadRightBottom:
    case OpKind::kToSequence:
      return {1, 0, 0, 0};
  }
  fault("unknown operation kind");
}

bool in_range(int index, size_t size) { return index >= 0 && static_cast<size_t>(index) < size; }

void check_ops(const BlockGraph& graph, const Block& block) {
  // A block without tensors and operations is opaque: it can be placed and costed by hand, not run.
  if (block.ops.empty() && block.tensors.empty()) return;
  if (block.ops.empty()) fault(block.name + ": no operation writes the output");
  if (block.tensors.size() < block.inputs.size())
    fault(fmt::format("{}: {} inputs but {} tensors", block.name, block.inputs.size(),
                      block.tensors.size()));
  const auto must_match = [&](const char* role, const LocalTensor& tensor, const Value& value) {
    if (tensor.shape != value.shape || tensor.dtype != value.dtype)
      fault(fmt::format("{}: {} tensor [{}] {} is not value {} [{}] {}", block.name, role,
                        fmt::join(tensor.shape, ","), to_string(tensor.dtype), value.name,
                        fmt::join(value.shape, ","), to_string(value.dtype)));
  };
  std::vector<bool> written(block.tensors.size(), false);
  for (size_t i = 0; i < block.inputs.size(); ++i) {
    must_match("input", block.tensors[i], graph.values[block.inputs[i]]);
    written[i] = true;
  }
  std::vector<bool> used(block.params.size(), false);
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    const auto where = [&] {
      return fmt::format("{}: operation {} ({})", block.name, i, to_string(op.kind));
    };
    const Arity arity = arity_of(op.kind);
    if (op.inputs.size() != arity.inputs || op.params.size() < arity.min_params ||
        op.params.size() > arity.max_params || op.ints.size() != arity.ints)
      fault(fmt::format("{}: {} inputs, {} parameters, {} ints; it takes {}, {} to {}, {}", where(),
                        op.inputs.size(), op.params.size(), op.ints.size(), arity.inputs,
                        arity.min_params, arity.max_params, arity.ints));
    for (int input : op.inputs)
      if (!in_range(input, written.size()) || !written[input])
        fault(fmt::format("{} reads tensor {} before it is written", where(), input));
    for (int param : op.params) {
      if (!in_range(param, block.params.size()))
        fault(fmt::format("{} uses parameter {} of {}", where(), param, block.params.size()));
      used[param] = true;
    }
    if (!in_range(op.output, written.size()) || written[op.output])
      fault(
          fmt::format("{} writes tensor {}, out of range or already written", where(), op.output));
    written[op.output] = true;
  }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fault(block.name + ": no operation uses parameter " + block.params[i].name);
  must_match("output", block.tensors[block.ops.back().output], graph.values[block.output]);
}

void check_names(const BlockGraph& graph) {
  std::unordered_set<std::string_view> blocks, values, params;
  for (const Block& block : graph.blocks) {
    if (!blocks.insert(block.name).second) fault("two blocks are named " + block.name);
    for (const Param& param : block.params)
      if (!params.insert(param.name).second) fault("two parameters are named " + param.name);
  }
  for (const Value& value : graph.values)
    if (!values.insert(value.name).second) fault("two values are named " + value.name);
}

void check_edges(const BlockGraph& graph) {
  const int blocks = static_cast<int>(graph.blocks.size());
  for (const Value& value : graph.values)
    if (value.producer < -1 || value.producer >= blocks)
      fault(fmt::format("value {}: producer {} of {} blocks", value.name, value.producer, blocks));
  std::vector<int> writer(graph.values.size(), -1);
  for (int b = 0; b < blocks; ++b) {
    const Block& block = graph.blocks[b];
    for (int input : block.inputs) {
      if (!in_range(input, graph.values.size()))
        fault(fmt::format("{}: input {} of {} values", block.name, input, graph.values.size()));
      const Value& value = graph.values[input];
      if (value.producer >= b)
        fault(fmt::format(
            "{} (position {}) reads {}, made by {} (position {}): not in topological order",
            block.name, b, value.name, graph.blocks[value.producer].name, value.producer));
    }
    if (!in_range(block.output, graph.values.size()))
      fault(
          fmt::format("{}: output {} of {} values", block.name, block.output, graph.values.size()));
    if (writer[block.output] != -1)
      fault(fmt::format("{} and {} both write value {}", graph.blocks[writer[block.output]].name,
                        block.name, graph.values[block.output].name));
    writer[block.output] = b;
  }
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (writer[v] != graph.values[v].producer)
      fault(fmt::format("value {} names block {} as its producer, block {} writes it",
                        graph.values[v].name, graph.values[v].producer, writer[v]));
  if (!in_range(graph.output, graph.values.size()) || graph.values[graph.output].producer < 0)
    fault(fmt::format("the output, value {}, is not made by a block", graph.output));
}

}  // namespace

void derive_states(BlockGraph& graph) {
  check_edges(graph);
  check_names(graph);
  for (const Block& block : graph.blocks) {
    check_ops(graph, block);
    if (block.trainable && block.params.empty() && !block.ops.empty())
      fault(block.name + ": trainable without parameters");
  }

  for (Value& value : graph.values) {
    value.consumers.clear();
    value.carries_grad = false;
  }
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b)
    for (int input : graph.blocks[b].inputs) {
      std::vector<int>& consumers = graph.values[input].consumers;
      if (consumers.empty() || consumers.back() != b) consumers.push_back(b);
    }

  for (Block& block : graph.blocks) block.reaches_loss = false;
  graph.blocks[graph.values[graph.output].producer].reaches_loss = true;
  for (auto block = graph.blocks.rbegin(); block != graph.blocks.rend(); ++block) {
    if (!block->reaches_loss) continue;
    for (int input : block->inputs)
      if (graph.values[input].producer >= 0)
        graph.blocks[graph.values[input].producer].reaches_loss = true;
  }

  for (Block& block : graph.blocks) {
    block.state = BlockState::kF;
    if (!block.reaches_loss) continue;  // never run: nothing above it gets a gradient through it
    bool input_carries_grad = false;
    for (int input : block.inputs) input_carries_grad |= graph.values[input].carries_grad;
    if (input_carries_grad)
      block.state = block.trainable ? BlockState::kFIW : BlockState::kFI;
    else if (block.trainable)
      block.state = BlockState::kFW;
    graph.values[block.output].carries_grad = block.trainable || input_carries_grad;
  }
}

}  // namespace stagecraft
