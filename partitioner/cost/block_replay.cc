#include "partitioner/cost/block_replay.h"

#include <algorithm>

#include "partitioner/cost/op_work.h"

namespace stagecraft {
namespace {

// oneDNN keeps channels in groups of a vector's length: 16 with AVX-512; 8 with AVX2, which then
// takes less. Of Stable Diffusion's channel counts only those of latents and hints do not divide by
// both. Half precision in tensor cores wants 8.
constexpr int64_t kCpuChannelGroup = 16, kSmallChannelGroup = 8;

// Fused attention works through tiles of queries and keys, one buffer a thread (LibTorch 2.11,
// CPU).
constexpr int64_t kKeyTile = 512;
int64_t query_tile(int64_t queries) { return queries >= 768 ? 256 : queries >= 192 ? 64 : 32; }

// Bytes that live now and did at the peak, relative to the moment the block starts.
class Ledger {
 public:
  void allocate(int64_t bytes) {
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }
  void release(int64_t bytes) { live_ -= bytes; }
  void touch(int64_t bytes) { peak_ = std::max(peak_, live_ + bytes); }
  int64_t peak() const { return peak_; }

 private:
  int64_t live_ = 0, peak_ = 0;
};

// One thread convolves a single image of at most this many elements without oneDNN (LibTorch 2.11):
// it unrolls the image's patches.
constexpr int64_t kPlainConvElements = 20480;

// A convolution's operands in the library's own layout, or the unrolled patches of the plain one.
struct ConvScratch {
  int64_t source = 0, weights = 0, destination = 0;
  int64_t patches = 0;
};

enum class ConvPass { kForward, kInputs, kWeights };

// Fewer channels than a group are read as they are, or (8 and more, for the weights' gradient) in
// groups of 8.
struct ConvLayout {
  int64_t group = kSmallChannelGroup;
  bool copies_source = true;
};

ConvLayout conv_layout(int64_t in, ConvPass pass, bool cuda) {
  if (cuda) return {.copies_source = in >= kSmallChannelGroup};
  const bool few = in < kCpuChannelGroup, very_few = in < kSmallChannelGroup;
  switch (pass) {
    case ConvPass::kForward:
      return {.group = kCpuChannelGroup, .copies_source = !few};
    case ConvPass::kInputs:
      return {.group = kCpuChannelGroup};
    case ConvPass::kWeights:
      break;
  }
  return {.group = few && !very_few ? kSmallChannelGroup : kCpuChannelGroup,
          .copies_source = !very_few};
}

ConvScratch conv_scratch(const Block& block, const Op& op, const ReplayOptions& options,
                         ConvPass pass) {
  const LocalTensor& x = block.tensors[op.inputs[0]];
  const LocalTensor& y = block.tensors[op.output];
  const Param& weight = block.params[op.params[0]];
  const int64_t in = weight.shape[1], out = weight.shape[0],
                kernel = weight.shape[2] * weight.shape[3];
  const bool pointwise = kernel == 1 && op.ints[0] == 1;
  if (pointwise && !options.cuda) return {};  // a plain matrix product
  if (!options.cuda && options.batch == 1 && x.elements() <= kPlainConvElements)
    return {.patches = in * kernel * (y.elements() / out) * size_of(x.dtype)};
  const ConvLayout layout = conv_layout(in, pass, options.cuda);
  const auto padded = [&layout](int64_t channels) {
    return (channels + layout.group - 1) / layout.group * layout.group;
  };
  const int64_t source = x.elements() / in * padded(in) * size_of(x.dtype) * options.batch;
  return {.source = layout.copies_source ? source : 0,
          .weights = padded(in) * padded(out) * kernel * options.parameter_size,
          .destination = y.elements() / out * padded(out) * size_of(y.dtype) * options.batch,
          .patches = 0};
}

// What math attention makes beside the scores and copies that it keeps: a second score matrix, and
// its result or the gradients of its operands in fp32 where they are not.
int64_t math_attention_scratch(const Block& block, const Op& op, const ReplayOptions& options,
                               bool backward) {
  int64_t casts = 0;
  if (block.tensors[op.output].dtype != DType::kF32) {
    casts = block.tensors[op.output].elements();
    if (backward)
      for (int input : op.inputs) casts += block.tensors[input].elements();
  }
  return ((backward ? 2 : 1) * score_bytes(block, op) + casts * size_of(DType::kF32)) *
         options.batch;
}

int64_t attention_scratch(const Block& block, const Op& op, const ReplayOptions& options,
                          bool backward) {
  if (options.attention == AttentionKernel::kMath)
    return math_attention_scratch(block, op, options, backward);
  const LocalTensor& q = block.tensors[op.inputs[0]];
  const int64_t queries = q.shape[0], keys = block.tensors[op.inputs[1]].shape[0];
  if (options.cuda)  // the backward kernel sums the gradient of q in fp32 (Dao 2023); forward works
                     // in shared memory
    return backward ? q.elements() * options.batch * 4 : 0;
  const int64_t tile = query_tile(queries), head_width = q.shape[1] / op.ints[0];
  const int64_t scores = tile * std::min(keys, kKeyTile);
  return (backward ? 2 * scores : scores + 2 * tile + tile * head_width) * 4;
}

// Whether an operation of this kind keeps tensors for its backward pass at all.
bool keeps_tensors(OpKind kind) {
  switch (kind) {
    case OpKind::kConv2d:
    case OpKind::kLinear:
    case OpKind::kGroupNorm:
    case OpKind::kLayerNorm:
    case OpKind::kSilu:
    case OpKind::kQuickGelu:
    case OpKind::kGeglu:
    case OpKind::kAttention:
    case OpKind::kEmbedding:
      return true;
    default:
      return false;
  }
}

// Whether `op` itself keeps `tensor`, one of its operands or its output.
bool keeps_tensor(const Block& block, const Op& op, int tensor, const ReplayOptions& options) {
  if (!keeps_tensors(op.kind)) return false;
  if (op.kind == OpKind::kAttention && options.attention == AttentionKernel::kMath)
    return tensor == op.inputs[2] && block.tensors[tensor].dtype == DType::kF32;
  return tensor != op.output || op.kind == OpKind::kAttention;
}

// Bytes that math attention keeps beside tensors of the block.
int64_t kept_inside(const Block& block, const Op& op, const ReplayOptions& options) {
  const bool math = op.kind == OpKind::kAttention && options.attention == AttentionKernel::kMath;
  return math ? math_attention_bytes(block, op) * options.batch : 0;
}

class ForwardReplay {
 public:
  ForwardReplay(const Block& block, const std::vector<bool>& needs_grad,
                const std::vector<bool>& saved, const ReplayOptions& options)
      : block_(block),
        needs_grad_(needs_grad),
        saved_(saved),
        options_(options),
        uses_(block.tensors.size(), 0) {}

  int64_t workspace() {
    for (const Op& op : block_.ops)
      for (int input : op.inputs) ++uses_[input];
    for (const Op& op : block_.ops) run(op);
    return std::max<int64_t>(0, ledger_.peak() - stays_);
  }

 private:
  int64_t size(int tensor) const { return tensor_bytes(block_, tensor, options_.batch); }

  void run(const Op& op) {
    const int64_t out = size(op.output);
    int64_t temporary = 0;
    if (op.kind == OpKind::kConv2d) {
      const ConvScratch s = conv_scratch(block_, op, options_, ConvPass::kForward);
      ledger_.touch(
          std::max({s.source + s.weights + s.destination, s.destination + out, s.patches + out}));
    } else if (op.kind == OpKind::kAttention) {
      const int64_t inside = kept_inside(block_, op, options_);
      ledger_.touch(out + inside + attention_scratch(block_, op, options_, /*backward=*/false));
      if (needs_grad_[op.output]) {
        ledger_.allocate(inside);
        stays_ += inside;
      }
    } else if (op.kind == OpKind::kGeglu) {
      temporary = out;  // GELU of the gate
    } else if (op.kind == OpKind::kQuickGelu) {
      temporary = 2 * out;
    }
    ledger_.allocate(temporary);
    ledger_.allocate(out);
    ledger_.release(temporary);
    if (op.output == block_.ops.back().output || saved_[op.output]) stays_ += out;
    for (int input : op.inputs) {
      const bool local = input >= static_cast<int>(block_.inputs.size());
      if (--uses_[input] == 0 && local && !saved_[input]) ledger_.release(size(input));
    }
  }

  const Block& block_;
  const std::vector<bool>& needs_grad_;
  const std::vector<bool>& saved_;
  const ReplayOptions& options_;
  std::vector<int> uses_;
  Ledger ledger_;
  int64_t stays_ = 0;
};

// Gradients by local tensor. Several may share one storage: an addition hands its output's gradient
// to both inputs.
class BackwardReplay {
 public:
  BackwardReplay(const Block& block, const std::vector<bool>& needs_grad,
                 const std::vector<bool>& saved, const ReplayOptions& options)
      : block_(block),
        needs_grad_(needs_grad),
        saved_(saved),
        options_(options),
        gradient_(block.tensors.size(), -1),
        first_keeper_(block.tensors.size(), -1) {}

  int64_t workspace() {
    if (block_.ops.empty() || !needs_grad_[block_.ops.back().output]) return 0;
    for (int i = static_cast<int>(block_.ops.size()) - 1; i >= 0; --i) {
      const Op& op = block_.ops[i];
      if (!needs_grad_[op.output]) continue;
      for (int input : op.inputs)
        if (keeps_tensor(block_, op, input, options_)) first_keeper_[input] = i;
      if (keeps_tensor(block_, op, op.output, options_))
        first_keeper_[op.output] = std::max(first_keeper_[op.output], i);
    }
    storages_.push_back(
        {.bytes = 0, .holders = 2});  // the output's gradient: the caller's, not counted here
    gradient_[block_.ops.back().output] = 0;
    for (int i = static_cast<int>(block_.ops.size()) - 1; i >= 0; --i)
      if (gradient_[block_.ops[i].output] >= 0) run(i);
    int64_t stays = 0;
    for (size_t i = 0; i < block_.inputs.size(); ++i)
      if (needs_grad_[i]) stays += size(static_cast<int>(i));
    return std::max<int64_t>(0, ledger_.peak() - stays);
  }

 private:
  struct Storage {
    int64_t bytes = 0;
    int holders = 0;
  };

  int64_t size(int tensor) const { return tensor_bytes(block_, tensor, options_.batch); }

  int fresh(int64_t bytes) {
    ledger_.allocate(bytes);
    storages_.push_back({.bytes = bytes, .holders = 1});
    return static_cast<int>(storages_.size()) - 1;
  }
  void drop(int storage) {
    if (--storages_[storage].holders == 0) ledger_.release(storages_[storage].bytes);
  }
  // Autograd adds a second contribution in place when it holds the only reference to the first.
  void deposit(int tensor, int storage) {
    int& held = gradient_[tensor];
    if (held < 0) {
      held = storage;
    } else if (storages_[held].holders == 1) {
      drop(storage);
    } else {
      const int sum = fresh(size(tensor));
      drop(held);
      drop(storage);
      held = sum;
    }
  }
  void hand_on(int tensor, int storage) {
    ++storages_[storage].holders;
    deposit(tensor, storage);
  }

  void run(int index) {
    const Op& op = block_.ops[index];
    const int incoming = gradient_[op.output];
    switch (op.kind) {
      case OpKind::kAdd:
      case OpKind::kAddParameter:
        for (int input : op.inputs)
          if (needs_grad_[input]) hand_on(input, incoming);
        break;
      case OpKind::kAddPerChannel:
        if (needs_grad_[op.inputs[0]]) hand_on(op.inputs[0], incoming);
        if (needs_grad_[op.inputs[1]]) deposit(op.inputs[1], fresh(size(op.inputs[1])));
        break;
      case OpKind::kConcatChannels:  // of one sample both parts are contiguous views
        for (int input : op.inputs) {
          if (!needs_grad_[input]) continue;
          options_.batch == 1 ? hand_on(input, incoming) : deposit(input, fresh(size(input)));
        }
        break;
      default:
        compute(op);
    }
    weight_gradients(op);
    gradient_[op.output] = -1;
    drop(incoming);
    free_saved(index);
  }

  void compute(const Op& op) {
    if (op.kind == OpKind::kAttention) {  // all three at once, whichever are needed
      std::vector<int> made;
      for (int input : op.inputs) made.push_back(fresh(size(input)));
      ledger_.touch(attention_scratch(block_, op, options_, /*backward=*/true));
      for (size_t i = 0; i < made.size(); ++i)
        needs_grad_[op.inputs[i]] ? deposit(op.inputs[i], made[i]) : drop(made[i]);
      return;
    }
    const int input = op.inputs[0];
    if (!needs_grad_[input]) return;
    const int64_t in = size(input), out = size(op.output);
    if (op.kind == OpKind::kConv2d) {
      const ConvScratch s = conv_scratch(block_, op, options_, ConvPass::kInputs);
      const bool strided = op.ints[0] > 1 && s.weights > 0;  // oneDNN makes one more copy then
      ledger_.touch(
          std::max(s.source + s.weights + s.destination, s.source + (strided ? 2 : 1) * in));
    } else if (op.kind == OpKind::kGeglu) {
      ledger_.touch(2 * out + in);  // two steps of the gate's half beside the whole gradient
    } else if (op.kind == OpKind::kQuickGelu) {
      ledger_.touch(3 * in);
    }
    deposit(input, fresh(in));
  }

  // They live until the block's backward pass ends.
  void weight_gradients(const Op& op) {
    if (!block_.trainable || op.params.empty()) return;
    const int64_t bytes = parameter_elements(block_, op) * options_.parameter_size;
    if (op.kind == OpKind::kConv2d) {
      const ConvScratch s = conv_scratch(block_, op, options_, ConvPass::kWeights);
      ledger_.touch(
          std::max({s.source + s.weights + s.destination, s.weights + bytes, s.patches + bytes}));
    }
    ledger_.allocate(bytes);
  }

  // What an operation kept is released when its backward is done and no earlier operation kept it
  // as well.
  void free_saved(int index) {
    const Op& op = block_.ops[index];
    const auto free_if_last = [&](int tensor) {
      const bool internal =
          tensor >= static_cast<int>(block_.inputs.size()) && tensor != block_.ops.back().output;
      if (internal && saved_[tensor] && first_keeper_[tensor] == index) {
        ledger_.release(size(tensor));
        first_keeper_[tensor] = -1;
      }
    };
    for (int input : op.inputs) free_if_last(input);
    free_if_last(op.output);
    ledger_.release(kept_inside(block_, op, options_));
  }

  const Block& block_;
  const std::vector<bool>& needs_grad_;
  const std::vector<bool>& saved_;
  const ReplayOptions& options_;
  std::vector<int> gradient_;  // storage by local tensor, -1: none
  std::vector<int>
      first_keeper_;  // the earliest operation that keeps the tensor, last in the backward pass
  std::vector<Storage> storages_;
  Ledger ledger_;
};

}  // namespace

BlockWorkspace replay_block(const Block& block, const std::vector<bool>& needs_grad,
                            const std::vector<bool>& saved, const ReplayOptions& options) {
  return {.forward = ForwardReplay(block, needs_grad, saved, options).workspace(),
          .backward = BackwardReplay(block, needs_grad, saved, options).workspace()};
}

}  // namespace stagecraft
