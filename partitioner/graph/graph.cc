#include "partitioner/graph/graph.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

int64_t product(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

// Multiply-adds of one operation on one sample.
int64_t macs_of(const Block& block, const Op& op) {
  const auto shape = [&](int tensor) -> const std::vector<int64_t>& {
    return block.tensors[tensor].shape;
  };
  switch (op.kind) {
    case OpKind::kConv2d: {  // each output element takes one dot product over Ci * k * k
      const std::vector<int64_t>& weight = block.params[op.params[0]].shape;
      return product(shape(op.output)) * weight[1] * weight[2] * weight[3];
    }
    case OpKind::kLinear:
      return product(shape(op.output)) * block.params[op.params[0]].shape[1];
    case OpKind::kAttention: {  // q k^T and p v; a causal mask is not taken off
      const int64_t queries = shape(op.inputs[0])[0], width = shape(op.inputs[0])[1];
      return 2 * queries * shape(op.inputs[1])[0] * width;
    }
    default:
      return 0;
  }
}

}  // namespace

int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI64:
      return 8;
    case DType::kU8:
      return 1;
  }
  throw InternalError("size_of: not a dtype");
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kF16:
      return "fp16";
    case DType::kBF16:
      return "bf16";
    case DType::kI64:
      return "int64";
    case DType::kU8:
      return "uint8";
  }
  throw InternalError("to_string: not a dtype");
}

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kConv2d:
      return "conv2d";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kGroupNorm:
      return "group_norm";
    case OpKind::kLayerNorm:
      return "layer_norm";
    case OpKind::kSilu:
      return "silu";
    case OpKind::kQuickGelu:
      return "quick_gelu";
    case OpKind::kGeglu:
      return "geglu";
    case OpKind::kAdd:
      return "add";
    case OpKind::kAddPerChannel:
      return "add_per_channel";
    case OpKind::kAddParameter:
      return "add_parameter";
    case OpKind::kConcatChannels:
      return "concat_channels";
    case OpKind::kUpsampleNearest2x:
      return "upsample_nearest_2x";
    case OpKind::kPadRightBottom:
      return "pad_right_bottom";
    case OpKind::kToSequence:
      return "to_sequence";
    case OpKind::kToImage:
      return "to_image";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kTimestepEmbedding:
      return "timestep_embedding";
    case OpKind::kEmbedding:
      return "embedding";
  }
  throw InternalError("to_string: not an operation kind");
}

std::string_view to_string(BlockKind kind) {
  switch (kind) {
    case BlockKind::kTimeEmbedding:
      return "time_embedding";
    case BlockKind::kConvIn:
      return "conv_in";
    case BlockKind::kHintConv:
      return "hint_conv";
    case BlockKind::kResnet:
      return "resnet";
    case BlockKind::kTransformer:
      return "transformer";
    case BlockKind::kDownsample:
      return "downsample";
    case BlockKind::kUpsample:
      return "upsample";
    case BlockKind::kZeroConv:
      return "zero_conv";
    case BlockKind::kSum:
      return "sum";
    case BlockKind::kOut:
      return "out";
    case BlockKind::kOther:
      return "other";
  }
  throw InternalError("to_string: not a block kind");
}

std::string_view to_string(BlockState state) {
  switch (state) {
    case BlockState::kF:
      return "F";
    case BlockState::kFI:
      return "F+I";
    case BlockState::kFW:
      return "F+W";
    case BlockState::kFIW:
      return "F+I+W";
  }
  throw InternalError("to_string: not a block state");
}

int64_t LocalTensor::elements() const { return product(shape); }
int64_t Param::elements() const { return product(shape); }

int64_t Block::parameters() const {
  int64_t sum = 0;
  for (const Param& param : params) sum += param.elements();
  return sum;
}

int64_t Block::macs() const {
  int64_t sum = 0;
  for (const Op& op : ops) sum += macs_of(*this, op);
  return sum;
}

Bytes Value::bytes(int64_t batch) const { return {product(shape) * size_of(dtype) * batch}; }

int BlockGraph::find_block(std::string_view name) const {
  const auto found = std::ranges::find(blocks, name, &Block::name);
  return found == blocks.end() ? -1 : static_cast<int>(found - blocks.begin());
}

std::vector<int> BlockGraph::gradient_consumers(int value) const {
  std::vector<int> result;
  const Value& v = values.at(value);
  if (!v.carries_grad) return result;
  std::ranges::copy_if(v.consumers, std::back_inserter(result),
                       [&](int block) { return blocks[block].reaches_loss; });
  return result;
}

}  // namespace stagecraft
