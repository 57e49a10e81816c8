#include <gtest/gtest.h>

#include "partitioner/base/error.h"
#include "partitioner/cost/op_work.h"

namespace stagecraft {
namespace {

// A block of one operation: tensors are its inputs in order, then its output.
struct OneOp {
  Block block;
  Op op;
  WorkContext context(int64_t batch = 1, int64_t parameter_size = 4) const {
    return {.block = block, .batch = batch, .parameter_size = parameter_size};
  }
  std::vector<bool> all() const { return std::vector<bool>(block.tensors.size(), true); }
};

OneOp one_op(OpKind kind, const std::vector<std::vector<int64_t>>& shapes,
             const std::vector<std::vector<int64_t>>& params = {}, std::vector<int64_t> ints = {}) {
  OneOp one;
  for (size_t i = 0; i < shapes.size(); ++i) one.block.tensors.push_back({.shape = shapes[i]});
  for (size_t i = 0; i + 1 < shapes.size(); ++i) {
    one.block.inputs.push_back(static_cast<int>(i));
    one.op.inputs.push_back(static_cast<int>(i));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    one.block.params.push_back({.name = "p", .shape = params[i]});
    one.op.params.push_back(static_cast<int>(i));
  }
  one.op.kind = kind;
  one.op.output = static_cast<int>(shapes.size()) - 1;
  one.op.ints = std::move(ints);
  one.block.ops = {one.op};
  return one;
}

TEST(AnalyticOpWork, ConvolutionCountsTwoOperationsAMultiplyAdd) {
  // 320 -> 640 channels, 3x3 at 8x8: 640 * 64 outputs of 320 * 9 products each.
  const OneOp conv =
      one_op(OpKind::kConv2d, {{320, 8, 8}, {640, 8, 8}}, {{640, 320, 3, 3}, {640}}, {1, 1});
  const OpWork work = forward_work(conv.context(2), conv.op);
  EXPECT_EQ(work.kind, WorkKind::kConv);
  EXPECT_DOUBLE_EQ(work.flops, 2.0 * 2 * 640 * 64 * 320 * 9);
  EXPECT_DOUBLE_EQ(work.bytes, 4.0 * (2 * 320 * 64 + 2 * 640 * 64 + 640 * 320 * 9 + 640));
}

TEST(AnalyticOpWork, GradientsOfAConvolutionCostAsMuchAsItsForward) {
  const OneOp conv =
      one_op(OpKind::kConv2d, {{8, 8, 8}, {16, 8, 8}}, {{16, 8, 3, 3}, {16}}, {1, 1});
  const double forward = forward_work(conv.context(), conv.op).flops;
  EXPECT_DOUBLE_EQ(input_gradient_work(conv.context(), conv.op, conv.all()).flops, forward);
  EXPECT_DOUBLE_EQ(weight_gradient_work(conv.context(), conv.op).flops, forward + 16 * 64);
}

TEST(AnalyticOpWork, AttentionCountsTwoProductsForwardAndFiveBackward) {
  const OneOp attention =
      one_op(OpKind::kAttention, {{64, 320}, {77, 320}, {77, 320}, {64, 320}}, {}, {8, 0});
  const double product = 2.0 * 64 * 77 * 320;
  EXPECT_DOUBLE_EQ(forward_work(attention.context(), attention.op).flops, 2 * product);
  EXPECT_DOUBLE_EQ(input_gradient_work(attention.context(), attention.op, attention.all()).flops,
                   5 * product);
}

TEST(AnalyticOpWork, MathAttentionPassesOverItsScores) {
  const OneOp attention =
      one_op(OpKind::kAttention, {{64, 320}, {77, 320}, {77, 320}, {64, 320}}, {}, {8, 0});
  WorkContext context = attention.context(2, 2);
  context.attention = AttentionKernel::kMath;
  const double product = 2.0 * 2 * 64 * 77 * 320, scores = 4.0 * 2 * 8 * 64 * 77;
  const double operands = 4.0 * 2 * (64 + 77 + 77 + 64) * 320;
  const OpWork forward = forward_work(context, attention.op);
  EXPECT_EQ(forward.kind, WorkKind::kFp32Matmul);
  EXPECT_DOUBLE_EQ(forward.flops, 2 * product);
  EXPECT_DOUBLE_EQ(forward.bytes, 4 * scores + 2 * operands);
  const OpWork backward = input_gradient_work(context, attention.op, attention.all());
  EXPECT_DOUBLE_EQ(backward.flops, 4 * product);
  EXPECT_DOUBLE_EQ(backward.bytes, 7 * scores + 4 * operands);
}

TEST(AnalyticOpWork, CausalAttentionHalvesTheProducts) {
  const OneOp attention =
      one_op(OpKind::kAttention, {{64, 32}, {64, 32}, {64, 32}, {64, 32}}, {}, {4, 1});
  EXPECT_DOUBLE_EQ(forward_work(attention.context(), attention.op).flops,
                   2 * 2.0 * 64 * 64 * 32 / 2);
}

TEST(AnalyticOpWork, NormReadsItsInputTwice) {
  const OneOp norm = one_op(OpKind::kGroupNorm, {{32, 4, 4}, {32, 4, 4}}, {{32}, {32}}, {8});
  EXPECT_DOUBLE_EQ(forward_work(norm.context(), norm.op).bytes, 4.0 * (3 * 512 + 64));
}

TEST(AnalyticOpWork, ParametersCountAtComputePrecision) {
  const OneOp linear = one_op(OpKind::kLinear, {{7, 8}, {7, 16}}, {{16, 8}});
  EXPECT_DOUBLE_EQ(forward_work(linear.context(1, 2), linear.op).bytes,
                   4.0 * (7 * 8 + 7 * 16) + 2.0 * 16 * 8);
}

TEST(AnalyticOpWork, AnAdditionHandsItsGradientOnForNothing) {
  const OneOp add = one_op(OpKind::kAdd, {{8, 4, 4}, {8, 4, 4}, {8, 4, 4}});
  const OpWork work = input_gradient_work(add.context(), add.op, add.all());
  EXPECT_EQ(work.bytes, 0);
  EXPECT_EQ(work.launches, 0);
}

TEST(AnalyticOpWork, InputsThatNeedNoGradientCostNothing) {
  const OneOp conv =
      one_op(OpKind::kConv2d, {{8, 8, 8}, {16, 8, 8}}, {{16, 8, 3, 3}, {16}}, {1, 1});
  EXPECT_EQ(input_gradient_work(conv.context(), conv.op, {false, true}).flops, 0);
}

TEST(AnalyticOpWork, EveryKindIsCounted) {
  for (int kind = 0; kind <= static_cast<int>(OpKind::kEmbedding); ++kind) {
    const OneOp one = one_op(static_cast<OpKind>(kind),
                             {{4, 4, 4}, {4, 4, 4}, {4, 4, 4}, {4, 4, 4}}, {{4, 4}, {4}}, {4, 1});
    EXPECT_GT(forward_work(one.context(), one.op).bytes, 0) << to_string(one.op.kind);
    EXPECT_NO_THROW(input_gradient_work(one.context(), one.op, one.all()))
        << to_string(one.op.kind);
  }
}

TEST(AnalyticOpWork, WeightGradientOfAnOperationWithoutWeightsIsABug) {
  const OneOp silu = one_op(OpKind::kSilu, {{4}, {4}}, {{4}});
  EXPECT_THROW(weight_gradient_work(silu.context(), silu.op), InternalError);
}

}  // namespace
}  // namespace stagecraft
