// The block graph: a network as plain data that can be placed, costed, scheduled and run.
//
// Nodes are blocks, the smallest unit that can be placed on a device; edges are named values. A
// block also lists its operations, so that costs are counted from the very list that is executed.
// Nothing here knows a particular network or LibTorch. Plain values: copy freely, any thread,
// nothing is owned elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "partitioner/base/units.h"

namespace stagecraft {

enum class DType { kF32, kF16, kBF16, kI64, kU8 };
int64_t size_of(DType dtype);             // bytes of one element
std::string_view to_string(DType dtype);  // "fp32", "fp16", "bf16", "int64", "uint8"

// Elementary operations. Shapes are per sample, the batch dimension comes first and is left out.
enum class OpKind {
  kConv2d,         // x [Ci,H,W], weight [Co,Ci,k,k], bias [Co] -> [Co,H',W']; ints: stride, padding
  kLinear,         // x [..,I], weight [O,I], optional bias [O] -> [..,O]
  kGroupNorm,      // x [C,H,W], weight [C], bias [C]; ints: groups; eps
  kLayerNorm,      // x [L,C], weight [C], bias [C]; eps
  kSilu,           // x * sigmoid(x)
  kQuickGelu,      // x * sigmoid(1.702 x)
  kGeglu,          // x [L,2C] -> first half * gelu(second half), exact (erf) GELU
  kAdd,            // a + b, same shape
  kAddPerChannel,  // x [C,H,W] + t [C]
  kAddParameter,   // x [L,C] + parameter [L,C]
  kConcatChannels,     // [Ca,H,W], [Cb,H,W] -> [Ca+Cb,H,W]
  kUpsampleNearest2x,  // [C,H,W] -> [C,2H,2W]
  kPadRightBottom,     // [C,H,W] -> [C,H+1,W+1], zeros
  kToSequence,         // [C,H,W] -> [H*W,C], contiguous
  kToImage,            // [H*W,C] -> [C,H,W], contiguous; ints: H, W
  kAttention,          // q [L,D], k [S,D], v [S,D] -> [L,D]; ints: heads, causal (0 or 1)
  kTimestepEmbedding,  // t [] int64 -> [D] fp32, cosines first; ints: D
  kEmbedding,          // ids [L] int64, weight [V,C] -> [L,C]
};
std::string_view to_string(OpKind kind);

// A tensor inside a block; the first ones are the block's inputs, in order.
struct LocalTensor {
  std::vector<int64_t> shape{};  // per sample
  DType dtype = DType::kF32;
  int64_t elements() const;  // per sample
  bool operator==(const LocalTensor&) const = default;
};

struct Op {
  OpKind kind{};
  std::vector<int> inputs{};    // local tensor indices
  int output = -1;              // local tensor index, written by this operation only
  std::vector<int> params{};    // indices into Block::params: weight, then bias
  std::vector<int64_t> ints{};  // as listed at OpKind
  double eps = 0.0;
  bool operator==(const Op&) const = default;
};

struct Param {
  std::string name{};  // diffusers' name behind its part: "unet.conv_in.weight"
  std::vector<int64_t> shape{};
  int64_t elements() const;
  bool operator==(const Param&) const = default;
};

enum class BlockKind {
  kTimeEmbedding,
  kConvIn,
  kHintConv,
  kResnet,
  kTransformer,
  kDownsample,
  kUpsample,
  kZeroConv,
  kSum,
  kOut,
  kOther,
};
std::string_view to_string(BlockKind kind);

// What training needs of a block: F always; I when its inputs carry gradients; W when it is
// trainable.
enum class BlockState { kF, kFI, kFW, kFIW };
std::string_view to_string(BlockState state);  // "F", "F+I", "F+W", "F+I+W"

struct Block {
  std::string name{};  // unique, "unet.down_blocks.0.resnets.0"
  std::string part{};  // "unet", "controlnet", "vae", "text_encoder"
  std::string
      section{};  // for totals: "time_embed", "input", "middle", "output", "out", "hint", ...
  BlockKind kind = BlockKind::kOther;
  std::vector<int> inputs{};           // value indices, in argument order
  int output = -1;                     // value index
  std::vector<Param> params{};         // canonical order
  bool trainable = false;              // set by the builder from what is trained
  std::vector<LocalTensor> tensors{};  // inputs first
  std::vector<Op> ops{};               // in execution order; the last one writes the block's output

  // Derived by `derive_states`. A block that does not reach the loss is in state F.
  bool reaches_loss = false;  // a block without a path to the loss is saved but never run
  BlockState state = BlockState::kF;

  int64_t parameters() const;  // number of elements
  int64_t macs()
      const;  // multiply-adds of one sample's forward: convolutions, linear layers, attention
  bool operator==(const Block&) const = default;
};

// An edge: one producer (or none: an input every rank reads or draws for itself), any number of
// consumers.
struct Value {
  std::string name{};  // the producing block's name, or "input.noisy_latents" and the like
  int producer = -1;   // block index, -1 for a local input
  std::vector<int> consumers{};  // block indices, ascending, each once; derived by `derive_states`
  std::vector<int64_t> shape{};  // per sample
  DType dtype = DType::kF32;
  bool carries_grad =
      false;  // derived: something trainable in or above the producer, and a path to the loss
  Bytes bytes(int64_t batch) const;
  bool operator==(const Value&) const = default;
};

// Blocks stand in topological order; that order is the *block position* that fixes the order in
// which gradients of one value are summed (last consumer first).
struct BlockGraph {
  std::string model{};            // name from the model file
  int64_t width = 0, height = 0;  // pixels
  std::vector<Block> blocks{};
  std::vector<Value> values{};
  int output = -1;  // the prediction, input of the loss

  int find_block(std::string_view name) const;  // index or -1
  // Consumers of `value` that hand a gradient back to it, ascending: those with a path to the loss.
  // Empty unless the value carries a gradient.
  std::vector<int> gradient_consumers(int value) const;
  bool operator==(const BlockGraph&) const = default;
};

// Fills consumers, carries_grad, reaches_loss and state from blocks, inputs and `trainable`.
// Throws InternalError when blocks are not in topological order, an index is out of range, names
// repeat, or operations do not form a single-assignment list ending in the output. A block without
// tensors and operations is taken as opaque: it can be placed and costed by hand.
void derive_states(BlockGraph& graph);

// Hex SHA-256 of the canonical text form (names, edges, shapes, dtypes, parameters, operations,
// what is trainable).
std::string graph_hash(const BlockGraph& graph);

// How attention is computed: fused, with no score matrix in memory, or by LibTorch's products with
// a softmax between them, all in fp32 whatever the operands are.
enum class AttentionKernel { kFlash, kMath };

// Bytes a sample of one fp32 score matrix, [heads, queries, keys], of an attention operation.
int64_t score_bytes(const Block& block, const Op& op);
// Bytes a sample that AttentionKernel::kMath makes and keeps: the softmax's result, q and k scaled,
// and v where it is not fp32 already.
int64_t math_attention_bytes(const Block& block, const Op& op);

// What one operation keeps for its backward pass; see graph/saved.cc and docs/graph.md for the rule
// of each kind.
struct SavedTensors {
  std::vector<int> tensors{};  // local tensor indices kept alive, sorted, each once
  int64_t extra_bytes = 0;     // per sample: statistics, log-sum-exp
};
// Of the whole block in its state (after `derive_states`), counting each tensor once. Inputs of the
// block may be among them, each at its position. Nothing for a block that does not reach the loss:
// it never runs.
SavedTensors saved_for_backward(const Block& block, const std::vector<bool>& input_carries_grad,
                                AttentionKernel attention = AttentionKernel::kFlash);

}  // namespace stagecraft
