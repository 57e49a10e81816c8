// Random block graphs with real operations, and random placements of them, as pure functions of a
// seed.
//
// Small convolutional networks with skips over any distance, channel concatenations, a time
// embedding with many consumers, frozen and trainable blocks mixed, and blocks without a path to
// the loss. They can be executed: shapes fit, sizes are tiny.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"

namespace stagecraft::testing {

// std::mt19937_64 is the same everywhere; the distributions of <random> are not, hence these two.
class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed) {}
  int below(int n) { return static_cast<int>(engine_() % static_cast<uint64_t>(n)); }
  bool percent(int chance) { return below(100) < chance; }

 private:
  std::mt19937_64 engine_;
};

struct RandomGraphOptions {
  int blocks = 12;  // besides the time embedding
  int trainable_percent = 40;
  int skip_percent = 40;     // chance of a second input
  int dead_end_percent = 8;  // chance that the next block does not read this one
  bool time_embedding = true;
};

namespace internal {

inline constexpr int64_t kImage = 4;  // height and width of every value
inline constexpr int64_t kTimeSize = 8;

inline int add_value(BlockGraph& graph, std::string name, std::vector<int64_t> shape, DType dtype) {
  Value value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  graph.values.push_back(std::move(value));
  return static_cast<int>(graph.values.size()) - 1;
}

// Appends tensors, operations and parameters to one block.
class BlockMaker {
 public:
  BlockMaker(BlockGraph& graph, std::string name) : graph_(graph) {
    block_.name = std::move(name);
    block_.part = "unet";
    block_.section = "input";
  }
  int input(int value) {
    block_.inputs.push_back(value);
    return tensor(graph_.values[value].shape, graph_.values[value].dtype);
  }
  int64_t channels(int local) const { return block_.tensors[local].shape[0]; }
  int param(std::string name, std::vector<int64_t> shape) {
    block_.params.push_back({.name = block_.name + "." + name, .shape = std::move(shape)});
    return static_cast<int>(block_.params.size()) - 1;
  }
  int op(OpKind kind, std::vector<int> inputs, std::vector<int64_t> shape,
         std::vector<int> params = {}, std::vector<int64_t> ints = {}) {
    Op op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.output = tensor(std::move(shape), DType::kF32);
    op.params = std::move(params);
    op.ints = std::move(ints);
    op.eps = kind == OpKind::kGroupNorm ? 1e-5 : 0.0;
    block_.ops.push_back(std::move(op));
    return block_.ops.back().output;
  }
  int conv(int x, int64_t out_channels) {
    const int weight = param("weight", {out_channels, channels(x), 3, 3});
    const int bias = param("bias", {out_channels});
    return op(OpKind::kConv2d, {x}, {out_channels, kImage, kImage}, {weight, bias}, {1, 1});
  }
  int finish(bool trainable) {
    const LocalTensor& last = block_.tensors[block_.ops.back().output];
    block_.trainable = trainable;
    block_.output = add_value(graph_, block_.name, last.shape, last.dtype);
    graph_.values[block_.output].producer = static_cast<int>(graph_.blocks.size());
    graph_.blocks.push_back(std::move(block_));
    return graph_.blocks.back().output;
  }

 private:
  int tensor(std::vector<int64_t> shape, DType dtype) {
    block_.tensors.push_back({.shape = std::move(shape), .dtype = dtype});
    return static_cast<int>(block_.tensors.size()) - 1;
  }
  BlockGraph& graph_;
  Block block_;
};

}  // namespace internal

inline BlockGraph random_graph(uint64_t seed, const RandomGraphOptions& options = {}) {
  using internal::kImage;
  Dice dice(seed);
  BlockGraph graph;
  graph.model = "random";
  graph.width = graph.height = 32;
  const int latents =
      internal::add_value(graph, "input.noisy_latents", {4, kImage, kImage}, DType::kF32);
  int embedding = -1;
  if (options.time_embedding) {
    const int timesteps = internal::add_value(graph, "input.timesteps", {}, DType::kI64);
    internal::BlockMaker maker(graph, "unet.time_embedding");
    int t = maker.op(OpKind::kTimestepEmbedding, {maker.input(timesteps)}, {internal::kTimeSize},
                     {}, {internal::kTimeSize});
    const int weight = maker.param("weight", {internal::kTimeSize, internal::kTimeSize});
    const int bias = maker.param("bias", {internal::kTimeSize});
    t = maker.op(OpKind::kLinear, {t}, {internal::kTimeSize}, {weight, bias});
    embedding = maker.finish(dice.percent(options.trainable_percent / 2));
  }
  int hidden = latents;
  std::vector<int> earlier = {latents};
  for (int i = 0; i < options.blocks; ++i) {
    const bool last = i + 1 == options.blocks;
    internal::BlockMaker maker(graph, "unet.block" + std::to_string(i));
    const int skip = earlier[dice.below(static_cast<int>(earlier.size()))];
    const int64_t channels = last || dice.percent(50) ? 4 : 8;
    // Inputs are the first tensors of a block, so all of them are named before any operation.
    int x = maker.input(hidden);
    const int y = skip != hidden && dice.percent(options.skip_percent) ? maker.input(skip) : -1;
    const int t = embedding >= 0 && channels == internal::kTimeSize ? maker.input(embedding) : -1;
    if (y >= 0) {
      const bool add = maker.channels(x) == maker.channels(y) && dice.percent(50);
      const int64_t sum = add ? maker.channels(x) : maker.channels(x) + maker.channels(y);
      x = maker.op(add ? OpKind::kAdd : OpKind::kConcatChannels, {x, y}, {sum, kImage, kImage});
    }
    x = maker.conv(x, channels);
    if (t >= 0) x = maker.op(OpKind::kAddPerChannel, {x, t}, {channels, kImage, kImage});
    if (!last) x = maker.op(OpKind::kSilu, {x}, {channels, kImage, kImage});
    const int output = maker.finish(dice.percent(options.trainable_percent));
    earlier.push_back(output);
    if (last) graph.output = output;
    if (!dice.percent(options.dead_end_percent)) hidden = output;
  }
  derive_states(graph);
  return graph;
}

// `stages` consecutive runs of blocks on `ranks` ranks, then blocks are moved where the placement
// stays without faults. A frozen time embedding is replicated half the time; where each stage
// has a rank of its own values are relayed half the time. Needs ranks <= stages
// <= blocks that reach the loss.
inline Placement random_placement(const BlockGraph& graph, uint64_t seed, int stages, int ranks) {
  Dice dice(seed ^ 0x9e3779b97f4a7c15u);
  const int blocks = static_cast<int>(graph.blocks.size());
  std::vector<int> starts;  // candidates for the first blocks of stages 1, 2, ...
  for (int b = 1; b < blocks; ++b) {
    if (graph.blocks[b].reaches_loss) starts.push_back(b);
  }
  if (!starts.empty()) starts.erase(starts.begin());  // left to stage 0
  if (static_cast<int>(starts.size()) < stages - 1 || ranks > stages) {
    throw std::invalid_argument(
        "random_placement: too few blocks for the stages, or stages for the ranks");
  }
  while (static_cast<int>(starts.size()) > stages - 1) {
    starts.erase(starts.begin() + dice.below(static_cast<int>(starts.size())));
  }
  Placement placement;
  for (int b = 0; b < blocks; ++b) {
    placement.stage_of_block.push_back(static_cast<int>(
        std::count_if(starts.begin(), starts.end(), [&](int start) { return start <= b; })));
    placement.recompute.push_back(dice.percent(30));
  }
  for (int s = 0; s < stages; ++s) {
    placement.rank_of_stage.push_back(s < ranks ? s : dice.below(ranks));
  }
  for (int s = stages - 1; s > 0; --s) {
    std::swap(placement.rank_of_stage[s], placement.rank_of_stage[dice.below(s + 1)]);
  }
  auto try_stage = [&](int block, int stage) {
    const int before = std::exchange(placement.stage_of_block[block], stage);
    if (!placement_faults(graph, placement).empty()) placement.stage_of_block[block] = before;
  };
  if (!graph.blocks[0].trainable && dice.percent(50)) try_stage(0, -1);
  for (int i = 0; i < blocks; ++i) {
    const int block = dice.below(blocks);
    if (placement.stage_of_block[block] >= 0) try_stage(block, dice.below(stages));
  }
  placement.relays = ranks == stages && dice.percent(50);
  return placement;
}

}  // namespace stagecraft::testing
