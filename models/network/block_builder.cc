#include "models/network/block_builder.h"

#include <fmt/format.h>

#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {

BlockBuilder::BlockBuilder(GraphBuilder& graph, BlockPlace place, const std::string& name,
                           const std::vector<int>& inputs)
    : graph_(graph) {
  block_.name = place.part + "." + name;
  block_.part = std::move(place.part);
  block_.section = std::move(place.section);
  block_.kind = place.kind;
  block_.trainable = place.trainable;
  block_.inputs = inputs;
  for (int input : inputs) {
    const Value& value = graph.value(input);
    block_.tensors.push_back({.shape = value.shape, .dtype = value.dtype});
  }
}

void BlockBuilder::need(bool holds, const std::string& what) const {
  if (!holds)
    throw ConfigError(fmt::format("model {}: {}: {}", graph_.graph_.model, block_.name, what));
}

int BlockBuilder::write_typed(OpKind kind, std::vector<int> inputs, LocalTensor output) {
  block_.tensors.push_back(std::move(output));
  Op op{.kind = kind, .inputs = std::move(inputs)};
  op.output = static_cast<int>(block_.tensors.size()) - 1;
  block_.ops.push_back(std::move(op));
  return last().output;
}

int BlockBuilder::write(OpKind kind, std::vector<int> inputs, std::vector<int64_t> shape) {
  return write_typed(kind, std::move(inputs),
                     {.shape = std::move(shape), .dtype = graph_.activations()});
}

void BlockBuilder::add_param(const std::string& name, std::vector<int64_t> shape) {
  last().params.push_back(static_cast<int>(block_.params.size()));
  block_.params.push_back({.name = block_.part + "." + name, .shape = std::move(shape)});
}

int BlockBuilder::conv(int x, const std::string& name, ConvShape conv) {
  const std::vector<int64_t> in = shape(x);
  const auto out_size = [&](int64_t size) {
    return (size + 2 * conv.padding - conv.kernel) / conv.stride + 1;
  };
  const int y = write(OpKind::kConv2d, {x}, {conv.out_channels, out_size(in[1]), out_size(in[2])});
  last().ints = {conv.stride, conv.padding};
  add_param(name + ".weight", {conv.out_channels, in[0], conv.kernel, conv.kernel});
  add_param(name + ".bias", {conv.out_channels});
  return y;
}

int BlockBuilder::linear(int x, const std::string& name, int64_t out_features, bool bias) {
  std::vector<int64_t> out = shape(x);
  const int64_t in_features = std::exchange(out.back(), out_features);
  const int y = write(OpKind::kLinear, {x}, out);
  add_param(name + ".weight", {out_features, in_features});
  if (bias) add_param(name + ".bias", {out_features});
  return y;
}

int BlockBuilder::group_norm(int x, const std::string& name, int64_t groups, double eps) {
  const int64_t channels = shape(x)[0];
  need(groups > 0 && channels % groups == 0,
       fmt::format("{} channels are not divisible into {} norm groups", channels, groups));
  const int y = write(OpKind::kGroupNorm, {x}, shape(x));
  last().ints = {groups};
  last().eps = eps;
  add_param(name + ".weight", {channels});
  add_param(name + ".bias", {channels});
  return y;
}

int BlockBuilder::layer_norm(int x, const std::string& name) {
  const int64_t channels = shape(x).back();
  const int y = write(OpKind::kLayerNorm, {x}, shape(x));
  last().eps = 1e-5;
  add_param(name + ".weight", {channels});
  add_param(name + ".bias", {channels});
  return y;
}

int BlockBuilder::silu(int x) { return write(OpKind::kSilu, {x}, shape(x)); }
int BlockBuilder::quick_gelu(int x) { return write(OpKind::kQuickGelu, {x}, shape(x)); }

int BlockBuilder::geglu(int x) {
  std::vector<int64_t> out = shape(x);
  out.back() /= 2;
  return write(OpKind::kGeglu, {x}, out);
}

int BlockBuilder::add(int a, int b) {
  need(shape(a) == shape(b),
       fmt::format("cannot add [{}] and [{}]", fmt::join(shape(a), ","), fmt::join(shape(b), ",")));
  return write(OpKind::kAdd, {a, b}, shape(a));
}

int BlockBuilder::add_per_channel(int x, int t) {
  need(shape(t).size() == 1 && shape(t)[0] == shape(x)[0],
       fmt::format("cannot add [{}] to the channels of [{}]", fmt::join(shape(t), ","),
                   fmt::join(shape(x), ",")));
  return write(OpKind::kAddPerChannel, {x, t}, shape(x));
}

int BlockBuilder::add_parameter(int x, const std::string& name) {
  const int y = write(OpKind::kAddParameter, {x}, shape(x));
  add_param(name + ".weight", shape(x));
  return y;
}

int BlockBuilder::concat_channels(int a, int b) {
  const std::vector<int64_t> left = shape(a), right = shape(b);
  need(
      left[1] == right[1] && left[2] == right[2],
      fmt::format("cannot concatenate [{}] and [{}]", fmt::join(left, ","), fmt::join(right, ",")));
  return write(OpKind::kConcatChannels, {a, b}, {left[0] + right[0], left[1], left[2]});
}

int BlockBuilder::upsample(int x) {
  const std::vector<int64_t> in = shape(x);
  return write(OpKind::kUpsampleNearest2x, {x}, {in[0], 2 * in[1], 2 * in[2]});
}

int BlockBuilder::pad_right_bottom(int x) {
  const std::vector<int64_t> in = shape(x);
  return write(OpKind::kPadRightBottom, {x}, {in[0], in[1] + 1, in[2] + 1});
}

int BlockBuilder::to_sequence(int x) {
  const std::vector<int64_t> in = shape(x);
  return write(OpKind::kToSequence, {x}, {in[1] * in[2], in[0]});
}

int BlockBuilder::to_image(int x, int64_t height, int64_t width) {
  const std::vector<int64_t> in = shape(x);
  need(in[0] == height * width,
       fmt::format("a sequence of {} is no {} x {} image", in[0], height, width));
  const int y = write(OpKind::kToImage, {x}, {in[1], height, width});
  last().ints = {height, width};
  return y;
}

int BlockBuilder::attention(AttentionInputs inputs, int64_t heads, bool causal) {
  const std::vector<int64_t> q = shape(inputs.q);
  need(heads > 0 && q[1] % heads == 0,
       fmt::format("{} channels are not divisible into {} heads", q[1], heads));
  const int y = write(OpKind::kAttention, {inputs.q, inputs.k, inputs.v}, q);
  last().ints = {heads, causal ? 1 : 0};
  return y;
}

int BlockBuilder::timestep_embedding(int t, int64_t width) {
  const int y = write_typed(OpKind::kTimestepEmbedding, {t}, {.shape = {width}});
  last().ints = {width};
  return y;
}

int BlockBuilder::embedding(int ids, const std::string& name, int64_t entries, int64_t width) {
  const int y = write(OpKind::kEmbedding, {ids}, {shape(ids)[0], width});
  add_param(name + ".weight", {entries, width});
  return y;
}

int BlockBuilder::finish() {
  BlockGraph& graph = graph_.graph_;
  const LocalTensor& output = block_.tensors[last().output];
  graph.values.push_back({.name = block_.name,
                          .producer = static_cast<int>(graph.blocks.size()),
                          .shape = output.shape,
                          .dtype = output.dtype});
  block_.output = static_cast<int>(graph.values.size()) - 1;
  graph.blocks.push_back(std::move(block_));
  return graph.blocks.back().output;
}

GraphBuilder::GraphBuilder(std::string model, int64_t width, int64_t height, DType activations)
    : activations_(activations) {
  graph_.model = std::move(model);
  graph_.width = width;
  graph_.height = height;
}

int GraphBuilder::add_input(const std::string& name, std::vector<int64_t> shape) {
  return add_input(name, std::move(shape), activations_);
}

int GraphBuilder::add_input(const std::string& name, std::vector<int64_t> shape, DType dtype) {
  graph_.values.push_back({.name = name, .shape = std::move(shape), .dtype = dtype});
  return static_cast<int>(graph_.values.size()) - 1;
}

BlockGraph GraphBuilder::finish(int output) {
  graph_.output = output;
  derive_states(graph_);
  return std::move(graph_);
}

}  // namespace stagecraft
