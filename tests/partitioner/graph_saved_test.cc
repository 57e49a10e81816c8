#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/graph/graph.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A block of one operation over the given input shapes; its output has the shape of the first.
Block one_op(Op op, const std::vector<std::vector<int64_t>>& inputs, bool trainable = false) {
  Block block{.name = "b"};
  for (size_t i = 0; i < inputs.size(); ++i) {
    block.inputs.push_back(static_cast<int>(i));
    block.tensors.push_back({.shape = inputs[i]});
    op.inputs.push_back(static_cast<int>(i));
  }
  block.tensors.push_back({.shape = inputs[0]});
  op.output = static_cast<int>(inputs.size());
  block.params = {{.name = "w", .shape = {4, 4}}, {.name = "b", .shape = {4}}};
  block.ops = {op};
  block.trainable = trainable;
  block.reaches_loss = true;
  return block;
}

Op op_of(OpKind kind, std::vector<int64_t> ints = {}, std::vector<int> params = {}) {
  return {.kind = kind, .params = std::move(params), .ints = std::move(ints)};
}

TEST(GraphSaved, FrozenConvolutionAndLinearKeepNothing) {
  EXPECT_THAT(
      saved_for_backward(one_op(op_of(OpKind::kConv2d, {1, 1}, {0, 1}), {{4, 6, 6}}), {true})
          .tensors,
      IsEmpty());
  EXPECT_THAT(
      saved_for_backward(one_op(op_of(OpKind::kLinear, {}, {0, 1}), {{7, 4}}), {true}).tensors,
      IsEmpty());
}

TEST(GraphSaved, TrainableConvolutionAndLinearKeepTheirInput) {
  const Block conv = one_op(op_of(OpKind::kConv2d, {1, 1}, {0, 1}), {{4, 6, 6}}, true);
  EXPECT_THAT(saved_for_backward(conv, {false}).tensors, ElementsAre(0));
  const Block linear = one_op(op_of(OpKind::kLinear, {}, {0, 1}), {{7, 4}}, true);
  EXPECT_THAT(saved_for_backward(linear, {false}).tensors, ElementsAre(0));
}

TEST(GraphSaved, GroupNormKeepsInputAndTwoFloatsAGroup) {
  const Block norm = one_op(op_of(OpKind::kGroupNorm, {2}, {0, 1}), {{4, 6, 6}});
  const SavedTensors saved = saved_for_backward(norm, {true});
  EXPECT_THAT(saved.tensors, ElementsAre(0));
  EXPECT_EQ(saved.extra_bytes, 2 * 2 * 4);
}

TEST(GraphSaved, LayerNormKeepsInputAndTwoFloatsARow) {
  const Block norm = one_op(op_of(OpKind::kLayerNorm, {}, {0, 1}), {{7, 4}});
  const SavedTensors saved = saved_for_backward(norm, {true});
  EXPECT_THAT(saved.tensors, ElementsAre(0));
  EXPECT_EQ(saved.extra_bytes, 2 * 7 * 4);
}

TEST(GraphSaved, TrainableNormKeepsItsInputWithoutAGradientAbove) {
  const Block norm = one_op(op_of(OpKind::kGroupNorm, {2}, {0, 1}), {{4, 6, 6}}, true);
  EXPECT_THAT(saved_for_backward(norm, {false}).tensors, ElementsAre(0));
}

TEST(GraphSaved, ActivationsKeepTheirInput) {
  for (OpKind kind : {OpKind::kSilu, OpKind::kQuickGelu, OpKind::kGeglu})
    EXPECT_THAT(saved_for_backward(one_op(op_of(kind), {{7, 4}}), {true}).tensors, ElementsAre(0))
        << to_string(kind);
}

TEST(GraphSaved, AttentionKeepsEverythingWhenOnlyOneInputCarriesGradient) {
  const Block attention = one_op(op_of(OpKind::kAttention, {2, 0}), {{7, 4}, {3, 4}, {3, 4}});
  const SavedTensors saved = saved_for_backward(attention, {true, false, false});
  EXPECT_THAT(saved.tensors, ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(saved.extra_bytes, 2 * 7 * 4);
}

// What torch.autograd.graph.saved_tensors_hooks shows of scaled_dot_product_attention under
// SDPBackend.MATH (PyTorch 2.11, CPU, two samples of 8 heads of 40): 197,120 + 245,760 + 473,088
// bytes and v itself in fp32; in fp16 and bf16 a copy of v, 197,120 bytes, instead of it.
TEST(GraphSaved, MathAttentionKeepsItsScoresAndCopiesInFp32) {
  Block attention = one_op(op_of(OpKind::kAttention, {8, 0}), {{96, 320}, {77, 320}, {77, 320}});
  const auto saved = [&] {
    return saved_for_backward(attention, {true, false, false}, AttentionKernel::kMath);
  };
  EXPECT_THAT(saved().tensors, ElementsAre(2));
  EXPECT_EQ(2 * saved().extra_bytes, 197'120 + 245'760 + 473'088);
  for (LocalTensor& tensor : attention.tensors) tensor.dtype = DType::kF16;
  EXPECT_THAT(saved().tensors, IsEmpty());
  EXPECT_EQ(2 * saved().extra_bytes, 197'120 + 245'760 + 473'088 + 197'120);
}

TEST(GraphSaved, MovingAndAddingKeepsNothing) {
  for (OpKind kind : {OpKind::kUpsampleNearest2x, OpKind::kPadRightBottom, OpKind::kToSequence})
    EXPECT_THAT(saved_for_backward(one_op(op_of(kind), {{4, 6, 6}}), {true}).tensors, IsEmpty());
  for (OpKind kind : {OpKind::kAdd, OpKind::kConcatChannels, OpKind::kAddPerChannel})
    EXPECT_THAT(saved_for_backward(one_op(op_of(kind), {{4}, {4}}), {true, true}).tensors,
                IsEmpty());
}

TEST(GraphSaved, NothingWithoutAGradient) {
  const Block attention = one_op(op_of(OpKind::kAttention, {2, 0}), {{7, 4}, {3, 4}, {3, 4}});
  const SavedTensors saved = saved_for_backward(attention, {false, false, false});
  EXPECT_THAT(saved.tensors, IsEmpty());
  EXPECT_EQ(saved.extra_bytes, 0);
}

TEST(GraphSaved, BlockThatNeverRunsKeepsNothing) {
  Block silu = one_op(op_of(OpKind::kSilu), {{7, 4}});
  silu.reaches_loss = false;
  EXPECT_THAT(saved_for_backward(silu, {true}).tensors, IsEmpty());
}

// x -> linear -> silu, and silu again: the gradient starts at the trainable linear layer, and a
// tensor that two operations keep is listed once.
TEST(GraphSaved, GradientStartsAtTheFirstTrainableOperationAndTensorsCountOnce) {
  Block block{.name = "b", .inputs = {0}};
  block.trainable = true;
  block.reaches_loss = true;
  block.params = {{.name = "w", .shape = {4, 4}}};
  block.tensors.assign(5, {.shape = {7, 4}});
  block.ops = {{.kind = OpKind::kSilu, .inputs = {0}, .output = 1},
               {.kind = OpKind::kLinear, .inputs = {1}, .output = 2, .params = {0}},
               {.kind = OpKind::kSilu, .inputs = {2}, .output = 3},
               {.kind = OpKind::kQuickGelu, .inputs = {2}, .output = 4}};
  EXPECT_THAT(saved_for_backward(block, {false}).tensors, ElementsAre(1, 2));
  EXPECT_THAT(saved_for_backward(block, {true}).tensors, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace stagecraft
