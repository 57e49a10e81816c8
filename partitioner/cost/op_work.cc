#include "partitioner/cost/op_work.h"

#include <algorithm>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

// Floating-point operations an element of a memory-bound operation takes; such operations are
// limited by bytes on every device described so far, so only the order of magnitude matters.
constexpr double kNormFlops = 8;
constexpr double kNormBackwardFlops = 16;
constexpr double kActivationFlops = 10;
// Matrix products of fused attention, each 2 L S D: forward QK', PV; backward QK' again, dV, dP,
// dQ, dK (Dao et al. 2022).
constexpr double kAttentionForwardProducts = 2;
constexpr double kAttentionBackwardProducts = 5;

// Attention by products and softmax: passes over the fp32 scores (forward: written, softmax reads
// and writes, read; backward: the same backwards, and each score once more for V and for Q or K),
// and kernels, copies to and from fp32 included.
constexpr double kMathForwardPasses = 4, kMathBackwardPasses = 7;
constexpr int kMathForwardLaunches = 6, kMathBackwardLaunches = 9;
constexpr double kMathBackwardProducts = 4;  // dV, dA, dQ, dK

double elements(const WorkContext& context, int tensor) {
  return static_cast<double>(context.block.tensors[tensor].elements() * context.batch);
}

double bytes(const WorkContext& context, int tensor) {
  return static_cast<double>(tensor_bytes(context.block, tensor, context.batch));
}

double parameter_bytes(const WorkContext& context, const Op& op) {
  return static_cast<double>(parameter_elements(context.block, op) * context.parameter_size);
}

// 2 x multiply-adds of a convolution or linear layer: every output element is a dot product over
// its row of the weight.
double product_flops(const WorkContext& context, const Op& op) {
  const Param& weight = context.block.params[op.params[0]];
  const int64_t row = weight.elements() / weight.shape[0];
  return 2.0 * elements(context, op.output) * static_cast<double>(row);
}

double attention_product_flops(const WorkContext& context, const Op& op) {
  const double keys = static_cast<double>(context.block.tensors[op.inputs[1]].shape[0]);
  const double causal = op.ints.size() > 1 && op.ints[1] != 0 ? 0.5 : 1.0;
  return 2.0 * elements(context, op.output) * keys * causal;
}

// Operands and results of attention are read and written once more as fp32.
OpWork math_attention_work(const WorkContext& context, const Op& op, bool backward) {
  double operands = elements(context, op.output);
  for (int input : op.inputs) operands += elements(context, input);
  const double keys = static_cast<double>(context.block.tensors[op.inputs[1]].shape[0]);
  const double scores = static_cast<double>(score_bytes(context.block, op) * context.batch);
  return {.kind = WorkKind::kFp32Matmul,
          .flops = (backward ? kMathBackwardProducts : kAttentionForwardProducts) * 2.0 *
                   elements(context, op.output) * keys,
          .bytes = (backward ? kMathBackwardPasses : kMathForwardPasses) * scores +
                   (backward ? 4.0 : 2.0) * operands * size_of(DType::kF32),
          .launches = backward ? kMathBackwardLaunches : kMathForwardLaunches};
}

WorkKind product_kind(OpKind kind) {
  return kind == OpKind::kConv2d ? WorkKind::kConv : WorkKind::kMatmul;
}

}  // namespace

int64_t tensor_bytes(const Block& block, int tensor, int64_t batch) {
  const LocalTensor& local = block.tensors[tensor];
  return local.elements() * size_of(local.dtype) * batch;
}

int64_t parameter_elements(const Block& block, const Op& op) {
  int64_t sum = 0;
  for (int p : op.params) sum += block.params[p].elements();
  return sum;
}

OpWork forward_work(const WorkContext& context, const Op& op) {
  const double out = elements(context, op.output), out_bytes = bytes(context, op.output);
  double in_bytes = 0;
  for (int input : op.inputs) in_bytes += bytes(context, input);
  const double all = in_bytes + out_bytes + parameter_bytes(context, op);
  switch (op.kind) {
    case OpKind::kConv2d:
    case OpKind::kLinear:
      return {.kind = product_kind(op.kind),
              .flops = product_flops(context, op),
              .bytes = all,
              .launches = 1};
    case OpKind::kAttention:
      if (context.attention == AttentionKernel::kMath) {
        return math_attention_work(context, op, /*backward=*/false);
      }
      return {.kind = WorkKind::kAttention,
              .flops = kAttentionForwardProducts * attention_product_flops(context, op),
              .bytes = all,
              .launches = 1};
    case OpKind::kGroupNorm:
    case OpKind::kLayerNorm:  // one pass for the statistics, one to normalise
      return {.flops = kNormFlops * out, .bytes = all + in_bytes, .launches = 2};
    case OpKind::kSilu:
      return {.flops = kActivationFlops * out, .bytes = all, .launches = 1};
    case OpKind::kQuickGelu:  // scale, sigmoid, product
      return {
          .flops = kActivationFlops * out, .bytes = 3 * out_bytes + 4 * in_bytes, .launches = 3};
    case OpKind::kGeglu:  // GELU of the gate into a temporary, then the product
      return {
          .flops = 2 * kActivationFlops * out, .bytes = in_bytes + 3 * out_bytes, .launches = 2};
    case OpKind::kAdd:
    case OpKind::kAddPerChannel:
    case OpKind::kAddParameter:
      return {.flops = out, .bytes = all, .launches = 1};
    case OpKind::kConcatChannels:
    case OpKind::kUpsampleNearest2x:
    case OpKind::kPadRightBottom:
    case OpKind::kToSequence:
    case OpKind::kToImage:
      return {.flops = 0, .bytes = all, .launches = 1};
    case OpKind::kTimestepEmbedding:
      return {.flops = kActivationFlops * out, .bytes = in_bytes + 4 * out_bytes, .launches = 5};
    case OpKind::kEmbedding:  // reads the rows it looks up, not the table
      return {.flops = 0, .bytes = in_bytes + 2 * out_bytes, .launches = 1};
  }
  throw InternalError("forward_work: unknown operation kind");
}

OpWork input_gradient_work(const WorkContext& context, const Op& op,
                           const std::vector<bool>& needed) {
  double in_bytes = 0;
  int wanted = 0;
  for (int input : op.inputs) {
    if (!needed[input]) continue;
    in_bytes += bytes(context, input);
    ++wanted;
  }
  if (wanted == 0) return {};
  const double out = elements(context, op.output), out_bytes = bytes(context, op.output);
  const double in = elements(context, op.inputs[0]);
  switch (op.kind) {
    case OpKind::kConv2d:
    case OpKind::kLinear:  // reads the output's gradient and the weight
      return {.kind = product_kind(op.kind),
              .flops = product_flops(context, op),
              .bytes = in_bytes + out_bytes + parameter_bytes(context, op),
              .launches = 1};
    case OpKind::kAttention: {  // reads q, k, v, output and its gradient
      if (context.attention == AttentionKernel::kMath) {
        return math_attention_work(context, op, /*backward=*/true);
      }
      double operands = 2 * out_bytes;
      for (int input : op.inputs) operands += bytes(context, input);
      return {.kind = WorkKind::kAttention,
              .flops = kAttentionBackwardProducts * attention_product_flops(context, op),
              .bytes = operands + in_bytes,
              .launches = 2};
    }
    case OpKind::kGroupNorm:
    case OpKind::kLayerNorm:  // two passes over input and gradient, one write
      return {.flops = kNormBackwardFlops * in,
              .bytes = 2 * (in_bytes + out_bytes) + in_bytes,
              .launches = 2};
    case OpKind::kSilu:
      return {.flops = kActivationFlops * in, .bytes = 2 * in_bytes + out_bytes, .launches = 1};
    case OpKind::kQuickGelu:
      return {.flops = 2 * kActivationFlops * in, .bytes = 8 * in_bytes, .launches = 4};
    case OpKind::kGeglu:  // two products, the derivative of GELU, and the halves put together
      return {.flops = 3 * kActivationFlops * out,
              .bytes = 9 * out_bytes + 2 * in_bytes,
              .launches = 4};
    case OpKind::kAdd:
    case OpKind::kAddParameter:
      return {};
    case OpKind::kAddPerChannel: {  // the image's gradient is handed on; the vector's is a sum over
                                    // pixels
      if (!needed[op.inputs[1]]) return {};
      return {.flops = out, .bytes = out_bytes + bytes(context, op.inputs[1]), .launches = 1};
    }
    case OpKind::kConcatChannels:
      return {.flops = 0, .bytes = 2 * in_bytes, .launches = wanted};
    case OpKind::kUpsampleNearest2x:
    case OpKind::kPadRightBottom:
    case OpKind::kToSequence:
    case OpKind::kToImage:
      return {.flops = in, .bytes = in_bytes + out_bytes, .launches = 1};
    case OpKind::kTimestepEmbedding:
    case OpKind::kEmbedding:
      return {};  // integers carry no gradient
  }
  throw InternalError("input_gradient_work: unknown operation kind");
}

OpWork weight_gradient_work(const WorkContext& context, const Op& op) {
  if (op.params.empty()) return {};
  const double out = elements(context, op.output), out_bytes = bytes(context, op.output);
  const double in_bytes = bytes(context, op.inputs[0]), weights = parameter_bytes(context, op);
  const bool bias = op.params.size() > 1;
  switch (op.kind) {
    case OpKind::kConv2d:
    case OpKind::kLinear:  // a product of input and output gradient; the bias is a sum of the
                           // latter
      return {.kind = product_kind(op.kind),
              .flops = product_flops(context, op) + (bias ? out : 0),
              .bytes = in_bytes + out_bytes * (bias ? 2 : 1) + weights,
              .launches = bias ? 2 : 1};
    case OpKind::kGroupNorm:
    case OpKind::kLayerNorm:
      return {.flops = 4 * out, .bytes = in_bytes + out_bytes + weights, .launches = 1};
    case OpKind::kAddParameter:
      return {.flops = out, .bytes = out_bytes + weights, .launches = 1};
    case OpKind::kEmbedding:
      return {.flops = out, .bytes = 2 * out_bytes + weights, .launches = 2};
    default:
      throw InternalError("weight_gradient_work: " + std::string(to_string(op.kind)) +
                          " has no parameters");
  }
}

}  // namespace stagecraft
