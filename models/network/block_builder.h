// Writes blocks operation by operation, working out shapes on the way; internal to models/network.
//
// `GraphBuilder` owns the graph being made; a `BlockBuilder` is filled and handed to it. Single
// thread. A network that does not fit together (channels not divisible by groups, shapes that
// cannot be added) throws ConfigError.
#pragma once

#include <string>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// Where a block belongs.
struct BlockPlace {
  std::string part{};     // "unet"
  std::string section{};  // "input"
  BlockKind kind = BlockKind::kOther;
  bool trainable = false;
};

struct ConvShape {
  int64_t out_channels = 0;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
};

class GraphBuilder;

// Every operation returns the index of the tensor it writes. Parameters are named "<part>.<given
// name>.weight".
class BlockBuilder {
 public:
  // `name` behind the part: "down_blocks.0.resnets.0". `inputs` are values of `graph`; tensor i is
  // input i.
  BlockBuilder(GraphBuilder& graph, BlockPlace place, const std::string& name,
               const std::vector<int>& inputs);

  int conv(int x, const std::string& name, ConvShape conv);
  int linear(int x, const std::string& name, int64_t out_features, bool bias = true);
  int group_norm(int x, const std::string& name, int64_t groups, double eps);
  int layer_norm(int x, const std::string& name);  // eps 1e-5
  int silu(int x);
  int quick_gelu(int x);
  int geglu(int x);
  int add(int a, int b);
  int add_per_channel(int x, int t);
  int add_parameter(int x, const std::string& name);  // named as given plus ".weight"
  int concat_channels(int a, int b);
  int upsample(int x);
  int pad_right_bottom(int x);
  int to_sequence(int x);
  int to_image(int x, int64_t height, int64_t width);
  struct AttentionInputs {
    int q, k, v;
  };
  int attention(AttentionInputs inputs, int64_t heads, bool causal = false);
  int timestep_embedding(int t, int64_t width);
  int embedding(int ids, const std::string& name, int64_t entries, int64_t width);

  const std::vector<int64_t>& shape(int tensor) const { return block_.tensors[tensor].shape; }
  // Appends the block to the graph; the last tensor is its output. Returns the output's value
  // index.
  int finish();

 private:
  int write(OpKind kind, std::vector<int> inputs, std::vector<int64_t> shape);
  int write_typed(OpKind kind, std::vector<int> inputs, LocalTensor output);
  void add_param(const std::string& name, std::vector<int64_t> shape);  // to the last operation
  Op& last() { return block_.ops.back(); }
  void need(bool holds, const std::string& what) const;

  GraphBuilder& graph_;
  Block block_;
};

class GraphBuilder {
 public:
  // `activations`: dtype of everything but integers and timestep embeddings.
  GraphBuilder(std::string model, int64_t width, int64_t height, DType activations);

  int add_input(const std::string& name, std::vector<int64_t> shape);
  int add_input(const std::string& name, std::vector<int64_t> shape, DType dtype);
  DType activations() const { return activations_; }
  const Value& value(int index) const { return graph_.values.at(index); }
  // Derives the states and hands the graph over.
  BlockGraph finish(int output);

 private:
  friend class BlockBuilder;
  BlockGraph graph_;
  DType activations_;
};

}  // namespace stagecraft
