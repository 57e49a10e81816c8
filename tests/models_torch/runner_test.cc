// The interpreter on hand-made blocks: each operation against its definition, and the checks at a
// block's edge.
#include "models/torch/runner.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Op make_op(OpKind kind, std::vector<int64_t> ints = {}) {
  Op op;
  op.kind = kind;
  op.ints = std::move(ints);
  return op;
}

// A block of one operation whose tensors have the given shapes, the last one being the output.
Block one_op(Op op, std::vector<LocalTensor> tensors, std::vector<Param> params = {}) {
  Block block;
  block.name = "test.block";
  block.params = std::move(params);
  block.tensors = std::move(tensors);
  const int inputs = static_cast<int>(block.tensors.size()) - 1;
  for (int i = 0; i < inputs; ++i) {
    block.inputs.push_back(i);
    op.inputs.push_back(i);
  }
  for (size_t i = 0; i < block.params.size(); ++i) op.params.push_back(static_cast<int>(i));
  block.output = op.output = inputs;
  block.ops = {op};
  return block;
}

at::Tensor run(const Block& block, std::vector<at::Tensor> inputs,
               std::vector<at::Tensor> params = {}) {
  return run_block(block, inputs, params);
}

std::string error_of(const Block& block, std::vector<at::Tensor> inputs,
                     std::vector<at::Tensor> params = {}) {
  try {
    run_block(block, inputs, params);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

TEST(RunBlock, TimestepEmbeddingPutsCosinesFirst) {
  const Block block =
      one_op(make_op(OpKind::kTimestepEmbedding, {64}), {{{}, DType::kI64}, {{64}, DType::kF32}});
  const at::Tensor y = run(block, {at::tensor({0, 7}, at::kLong)});
  EXPECT_TRUE(at::equal(y[0].slice(0, 0, 32), at::ones({32})));
  EXPECT_TRUE(at::equal(y[0].slice(0, 32), at::zeros({32})));
  EXPECT_FLOAT_EQ(y[1][0].item<float>(), std::cos(7.0f));
  EXPECT_FLOAT_EQ(y[1][33].item<float>(), std::sin(7.0f * std::pow(10000.0f, -1.0f / 32)));
}

TEST(RunBlock, AttentionIsSoftmaxOfScaledProducts) {
  const Block block =
      one_op(make_op(OpKind::kAttention, {4, 0}), {{{24, 64}}, {{7, 64}}, {{7, 64}}, {{24, 64}}});
  const at::Tensor q = at::randn({2, 24, 64}), k = at::randn({2, 7, 64}), v = at::randn({2, 7, 64});
  const at::Tensor y = run(block, {q, k, v});
  for (int64_t head = 0; head < 4; ++head) {
    const auto part = [head](const at::Tensor& t) { return t.narrow(-1, 16 * head, 16); };
    const at::Tensor scores = at::matmul(part(q), part(k).transpose(1, 2)) / 4.0;
    EXPECT_TRUE(at::allclose(part(y), at::matmul(scores.softmax(-1), part(v)), 1e-5, 1e-5));
  }
}

TEST(RunBlock, CausalAttentionNeverLooksAhead) {
  const Block block =
      one_op(make_op(OpKind::kAttention, {2, 1}), {{{9, 16}}, {{9, 16}}, {{9, 16}}, {{9, 16}}});
  at::Tensor q = at::randn({1, 9, 16}), k = at::randn({1, 9, 16}), v = at::randn({1, 9, 16});
  const at::Tensor before = run(block, {q, k, v});
  v[0][8].fill_(100.0);
  k[0][8].fill_(100.0);
  const at::Tensor after = run(block, {q, k, v});
  EXPECT_TRUE(at::equal(before.slice(1, 0, 8), after.slice(1, 0, 8)));
  EXPECT_FALSE(at::equal(before, after));
}

TEST(RunBlock, SequenceAndImageAreInverse) {
  const Block there = one_op(make_op(OpKind::kToSequence), {{{8, 4, 6}}, {{24, 8}}});
  const Block back = one_op(make_op(OpKind::kToImage, {4, 6}), {{{24, 8}}, {{8, 4, 6}}});
  const at::Tensor x = at::randn({2, 8, 4, 6}), rows = run(there, {x});
  EXPECT_TRUE(at::equal(rows[1][6 + 2], x[1].select(1, 1).select(1, 2)));
  EXPECT_TRUE(at::equal(run(back, {rows}), x));
}

TEST(RunBlock, PaddingAddsZerosRightAndBelow) {
  const Block block = one_op(make_op(OpKind::kPadRightBottom), {{{1, 2, 3}}, {{1, 3, 4}}});
  const at::Tensor y = run(block, {at::ones({1, 1, 2, 3})});
  EXPECT_EQ(y.sum().item<float>(), 6.0f);
  EXPECT_EQ(y[0][0][2].sum().item<float>() + y[0][0].select(1, 3).sum().item<float>(), 0.0f);
}

TEST(RunBlock, UpsamplingRepeatsPixels) {
  const Block block = one_op(make_op(OpKind::kUpsampleNearest2x), {{{1, 2, 3}}, {{1, 4, 6}}});
  const at::Tensor x = at::randn({2, 1, 2, 3});
  EXPECT_TRUE(at::equal(run(block, {x}), x.repeat_interleave(2, 2).repeat_interleave(2, 3)));
}

TEST(RunBlock, SumPerChannelCoversThePicture) {
  const Block block = one_op(make_op(OpKind::kAddPerChannel), {{{2, 2, 3}}, {{2}}, {{2, 2, 3}}});
  const at::Tensor x = at::randn({3, 2, 2, 3}), t = at::randn({3, 2});
  const at::Tensor y = run(block, {x, t});
  EXPECT_TRUE(at::equal(y[2][1], x[2][1] + t[2][1]));
}

TEST(RunBlock, OperationsRunInOrderOnSharedInputs) {
  Block block = one_op(make_op(OpKind::kSilu), {{{4}}, {{4}}});
  block.tensors.push_back({{4}});
  Op add = make_op(OpKind::kAdd);
  add.inputs = {1, 0};
  add.output = 2;
  block.ops.push_back(add);
  const at::Tensor x = at::randn({1, 4});
  EXPECT_TRUE(at::equal(run(block, {x}), at::silu(x) + x));
}

TEST(RunBlock, WrongInputShapeNamesBlockAndBothShapes) {
  const Block block = one_op(make_op(OpKind::kSilu), {{{8, 4, 6}}, {{8, 4, 6}}});
  EXPECT_THAT(error_of(block, {at::zeros({2, 8, 6, 4})}),
              AllOf(HasSubstr("test.block"), HasSubstr("[2, 8, 4, 6]"), HasSubstr("[2, 8, 6, 4]")));
}

TEST(RunBlock, DifferentBatchesAreRefused) {
  const Block block = one_op(make_op(OpKind::kAdd), {{{4}}, {{4}}, {{4}}});
  EXPECT_THAT(error_of(block, {at::zeros({2, 4}), at::zeros({1, 4})}),
              AllOf(HasSubstr("input 1"), HasSubstr("[2, 4]"), HasSubstr("[1, 4]")));
}

TEST(RunBlock, WrongResultShapeIsRefused) {
  const Block block = one_op(make_op(OpKind::kUpsampleNearest2x), {{{1, 2, 3}}, {{1, 4, 5}}});
  EXPECT_THAT(error_of(block, {at::zeros({1, 1, 2, 3})}),
              AllOf(HasSubstr("[1, 1, 4, 5]"), HasSubstr("[1, 1, 4, 6]")));
}

TEST(RunBlock, StridedInputIsRefused) {
  const Block block = one_op(make_op(OpKind::kSilu), {{{8, 4, 6}}, {{8, 4, 6}}});
  EXPECT_THAT(error_of(block, {at::zeros({2, 8, 4, 6}).contiguous(at::MemoryFormat::ChannelsLast)}),
              HasSubstr("not contiguous"));
}

TEST(RunBlock, WrongDtypeIsRefused) {
  const Block block = one_op(make_op(OpKind::kSilu), {{{4}}, {{4}}});
  EXPECT_THAT(error_of(block, {at::zeros({2, 4}, at::kDouble)}), HasSubstr("should be fp32"));
}

TEST(RunBlock, WrongParameterShapeIsNamed) {
  const Block block = one_op(make_op(OpKind::kLinear), {{{4}}, {{3}}}, {{"w", {3, 4}}});
  EXPECT_THAT(error_of(block, {at::zeros({2, 4})}, {at::zeros({4, 3})}),
              AllOf(HasSubstr("parameter w"), HasSubstr("[3, 4]"), HasSubstr("[4, 3]")));
}

TEST(RunChain, PassesValuesFromBlockToBlock) {
  BlockGraph graph;
  graph.values.resize(3);
  graph.values[1].producer = 0;
  graph.values[2].producer = 1;
  Block first = one_op(make_op(OpKind::kSilu), {{{4}}, {{4}}});
  Block second = one_op(make_op(OpKind::kLinear), {{{4}}, {{3}}}, {{"w", {3, 4}}});
  second.inputs = {1};
  second.output = 2;
  graph.blocks = {first, second};
  graph.output = 2;
  const at::Tensor x = at::randn({2, 4}).set_requires_grad(true), w = at::randn({3, 4});
  const at::Tensor y = run_chain(graph, x, {{}, {w}});
  EXPECT_TRUE(at::equal(y, at::linear(at::silu(x), w)));
  EXPECT_FALSE(y.requires_grad());
}

}  // namespace
}  // namespace stagecraft
