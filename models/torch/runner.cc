#include "models/torch/runner.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/torch/linear_ops.h"
#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {
namespace {

// diffusers' get_timestep_embedding with flip_sin_to_cos and no frequency shift, in fp32.
at::Tensor timestep_embedding(const at::Tensor& t_n, int64_t width) {
  const int64_t half = width / 2;
  const at::TensorOptions fp32 = t_n.options().dtype(at::kFloat);
  const at::Tensor exponent = at::arange(0, half, fp32) * -std::log(10000.0) / half;
  const at::Tensor angle = t_n.unsqueeze(1).to(at::kFloat) * exponent.exp().unsqueeze(0);
  return at::cat({at::cos(angle), at::sin(angle)}, 1);
}

// q [N,L,D], k and v [N,S,D] -> [N,L,D]. The kernel writes [N,L,heads,d], so the last reshape is a
// view.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t heads,
                     bool causal) {
  const auto split = [heads](const at::Tensor& x) {
    return x.view({x.size(0), x.size(1), heads, x.size(2) / heads}).transpose(1, 2);
  };
  return at::scaled_dot_product_attention(split(q), split(k), split(v), /*attn_mask=*/{},
                                          /*dropout_p=*/0.0, causal)
      .transpose(1, 2)
      .reshape(q.sizes());
}

double group_norm_eps(const Op& op) { return made(Mistake::kGroupNormEps) ? 10 * op.eps : op.eps; }

class Interpreter {
 public:
  Interpreter(const Block& block, std::span<const at::Tensor> inputs,
              std::span<const at::Tensor> params)
      : block_(block), params_(params), locals_(block.tensors.size()) {
    if (inputs.size() != block.inputs.size() || params.size() != block.params.size()) {
      fail(fmt::format("takes {} inputs and {} parameters, was given {} and {}",
                       block.inputs.size(), block.params.size(), inputs.size(), params.size()));
    }
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].defined()) fail(fmt::format("input {} is undefined", i));
      if (i == 0) batch_ = inputs[0].dim() > 0 ? inputs[0].size(0) : 0;
      check_tensor(fmt::format("input {}", i), inputs[i], static_cast<int>(i));
      if (!inputs[i].is_contiguous()) fail(fmt::format("input {} is not contiguous", i));
      locals_[i] = inputs[i];
    }
    for (size_t i = 0; i < params.size(); ++i) {
      if (!params[i].defined() || params[i].sizes() != at::IntArrayRef(block.params[i].shape)) {
        fail(fmt::format("parameter {} should have shape [{}], has {}", block.params[i].name,
                         fmt::join(block.params[i].shape, ", "), shape_text(params[i])));
      }
    }
  }

  at::Tensor run() {
    std::vector<size_t> last_use(locals_.size(), 0);
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      for (const int input : block_.ops[i].inputs) last_use.at(input) = i;
    }
    for (size_t i = 0; i < block_.ops.size(); ++i) {
      const Op& op = block_.ops[i];
      at::Tensor result = execute(op);
      check_tensor(fmt::format("{} (operation {})", to_string(op.kind), i), result, op.output);
      for (const int input : op.inputs) {
        if (last_use[input] == i) locals_[input].reset();
      }
      locals_[op.output] = std::move(result);
    }
    at::Tensor& output = locals_.at(block_.ops.back().output);
    if (!output.is_contiguous()) fail("the output is not contiguous");
    return std::move(output);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InternalError(fmt::format("block {}: {}", block_.name, what));
  }

  static std::string shape_text(const at::Tensor& t) {
    return t.defined() ? fmt::format("[{}]", fmt::join(t.sizes(), ", ")) : "no value";
  }

  void check_tensor(const std::string& what, const at::Tensor& t, int local) const {
    const LocalTensor& expected = block_.tensors.at(local);
    const at::IntArrayRef shape = expected.shape;
    const bool fits = t.dim() == static_cast<int64_t>(shape.size()) + 1 && t.size(0) == batch_ &&
                      t.sizes().slice(1) == shape;
    if (!fits) {
      std::vector<int64_t> full = {batch_};
      full.insert(full.end(), shape.begin(), shape.end());
      fail(fmt::format("{} should have shape [{}], has {}", what, fmt::join(full, ", "),
                       shape_text(t)));
    }
    if (t.scalar_type() != to_torch(expected.dtype)) {
      fail(fmt::format("{} should be {}, is {}", what, to_string(expected.dtype),
                       at::toString(t.scalar_type())));
    }
  }

  const at::Tensor& in(const Op& op, size_t i) const { return locals_.at(op.inputs.at(i)); }
  at::Tensor param(const Op& op, size_t i) const {
    return i < op.params.size() ? params_[op.params[i]] : at::Tensor();
  }

  at::Tensor execute(const Op& op) const {
    const at::Tensor& x = in(op, 0);
    switch (op.kind) {
      case OpKind::kConv2d:
        return conv2d(x, param(op, 0), param(op, 1), op.ints.at(0), op.ints.at(1));
      case OpKind::kLinear:
        return linear(x, param(op, 0), param(op, 1));
      case OpKind::kGroupNorm:
        return at::group_norm(x, op.ints.at(0), param(op, 0), param(op, 1), group_norm_eps(op));
      case OpKind::kLayerNorm:
        return at::layer_norm(x, {x.size(-1)}, param(op, 0), param(op, 1), op.eps);
      case OpKind::kSilu:
        return at::silu(x);
      case OpKind::kQuickGelu:
        return quick_gelu(x);
      case OpKind::kGeglu:
        return geglu(x);
      case OpKind::kAdd:
        return x + in(op, 1);
      case OpKind::kAddPerChannel:
        return x + in(op, 1).unsqueeze(-1).unsqueeze(-1);
      case OpKind::kAddParameter:
        return x + param(op, 0);
      case OpKind::kConcatChannels:
        return at::cat({x, in(op, 1)}, 1);
      case OpKind::kUpsampleNearest2x:
        return at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}, 2.0, 2.0);
      case OpKind::kPadRightBottom:
        return at::constant_pad_nd(x, {0, 1, 0, 1});
      case OpKind::kToSequence:
        return x.flatten(2).transpose(1, 2).contiguous();
      case OpKind::kToImage:
        return x.transpose(1, 2).contiguous().view(
            {x.size(0), x.size(2), op.ints.at(0), op.ints.at(1)});
      case OpKind::kAttention:
        return attention(x, in(op, 1), in(op, 2), op.ints.at(0), op.ints.at(1) != 0);
      case OpKind::kTimestepEmbedding:
        return timestep_embedding(x, op.ints.at(0));
      case OpKind::kEmbedding:
        return at::embedding(param(op, 0), x);
    }
    fail("holds an unknown operation");
  }

  const Block& block_;
  std::span<const at::Tensor> params_;
  int64_t batch_ = 0;
  std::vector<at::Tensor> locals_;  // emptied behind the last use
};

}  // namespace

at::ScalarType to_torch(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return at::kFloat;
    case DType::kF16:
      return at::kHalf;
    case DType::kBF16:
      return at::kBFloat16;
    case DType::kI64:
      return at::kLong;
    case DType::kU8:
      return at::kByte;
  }
  throw InternalError("unknown dtype");
}

at::Tensor run_block(const Block& block, std::span<const at::Tensor> inputs,
                     std::span<const at::Tensor> params) {
  if (block.ops.empty()) {
    throw InternalError(fmt::format("block {}: has no operations", block.name));
  }
  return Interpreter(block, inputs, params).run();
}

at::Tensor run_chain(const BlockGraph& graph, const at::Tensor& input,
                     const std::vector<std::vector<at::Tensor>>& params) {
  const at::NoGradGuard frozen;
  if (params.size() != graph.blocks.size()) {
    throw InternalError(fmt::format("{}: {} blocks, but parameters of {}", graph.model,
                                    graph.blocks.size(), params.size()));
  }
  std::vector<size_t> last_use(graph.values.size(), 0);
  for (size_t i = 0; i < graph.blocks.size(); ++i) {
    for (const int value : graph.blocks[i].inputs) last_use.at(value) = i;
  }
  std::vector<at::Tensor> values(graph.values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (graph.values[i].producer < 0) values[i] = input;
  }
  for (size_t i = 0; i < graph.blocks.size(); ++i) {
    const Block& block = graph.blocks[i];
    std::vector<at::Tensor> inputs;
    for (const int value : block.inputs) {
      const bool last = last_use[value] == i && value != graph.output;
      inputs.push_back(last && std::ranges::count(block.inputs, value) == 1
                           ? std::move(values[value])
                           : values[value]);
    }
    values.at(block.output) = run_block(block, inputs, params[i]);
  }
  return values.at(graph.output);
}

}  // namespace stagecraft
