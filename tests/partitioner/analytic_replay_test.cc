#include <gtest/gtest.h>

#include "partitioner/cost/block_replay.h"

namespace stagecraft {
namespace {

// Tensors of [8, 4, 4] fp32 (512 bytes) but where a shape is given; the first is the block's input.
constexpr int64_t kTensor = 8 * 4 * 4 * 4;

class BlockOf {
 public:
  BlockOf() {
    block.inputs = {0};
    block.tensors.push_back({.shape = {8, 4, 4}});
  }
  int op(OpKind kind, std::vector<int> inputs, std::vector<int64_t> shape = {8, 4, 4},
         std::vector<int> params = {}, std::vector<int64_t> ints = {}) {
    block.tensors.push_back({.shape = std::move(shape)});
    const int output = static_cast<int>(block.tensors.size()) - 1;
    block.ops.push_back({.kind = kind,
                         .inputs = std::move(inputs),
                         .output = output,
                         .params = std::move(params),
                         .ints = std::move(ints)});
    return output;
  }
  BlockWorkspace replay(bool grad, std::vector<int> saved, ReplayOptions options = {}) const {
    std::vector<bool> flags(block.tensors.size(), false);
    for (int t : saved) flags[t] = true;
    return replay_block(block, std::vector<bool>(block.tensors.size(), grad), flags, options);
  }
  Block block;
};

TEST(AnalyticReplay, OneOperationNeedsNothingBesideItsOutput) {
  BlockOf b;
  b.op(OpKind::kSilu, {0});
  EXPECT_EQ(b.replay(false, {}).forward, 0);
}

TEST(AnalyticReplay, AChainHoldsTwoTensorsAtATime) {
  BlockOf b;
  b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {0})})});
  EXPECT_EQ(b.replay(false, {}).forward, kTensor);  // the one before the output
}

TEST(AnalyticReplay, SavedTensorsAreNotWorkspace) {
  BlockOf b;
  b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {0})})});
  EXPECT_EQ(b.replay(true, {0, 1, 2}).forward, 0);
}

TEST(AnalyticReplay, ATensorReadTwiceLivesUntilItsLastReader) {
  BlockOf b;
  const int early = b.op(OpKind::kSilu, {0});
  const int late = b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {early})});
  b.op(OpKind::kAdd, {early, late});
  EXPECT_EQ(b.replay(false, {}).forward, 2 * kTensor);  // early and late beside the output
}

TEST(AnalyticReplay, BatchMultiplies) {
  BlockOf b;
  b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {0})});
  EXPECT_EQ(b.replay(false, {}, {.batch = 3}).forward, 3 * kTensor);
}

constexpr int64_t kImage = 16 * 64 * 64 * 4, kConvWeights = 16 * 16 * 9 * 4;

BlockOf conv_of(int64_t out_channels) {
  BlockOf b;
  b.block.tensors[0].shape = {16, 64, 64};
  b.block.params = {{.name = "w", .shape = {out_channels, 16, 3, 3}}};
  b.op(OpKind::kConv2d, {0}, {out_channels, 64, 64}, {0}, {1, 1});
  return b;
}

// Measured with LibTorch 2.11 on CPU: source, weights and destination in oneDNN's layout live
// together, then destination and output.
TEST(AnalyticReplay, ConvolutionHoldsItsOperandsInTheLibrarysLayout) {
  EXPECT_EQ(conv_of(16).replay(false, {}).forward, kImage + kConvWeights + kImage - kImage);
}

TEST(AnalyticReplay, ConvolutionChannelsAreRoundedUpToTheLibrarysGroup) {
  EXPECT_EQ(conv_of(4).replay(false, {}).forward, kImage + kConvWeights + kImage - kImage / 4);
}

// Measured with AVX-512: 8 channels are read as they are, and in groups of 8 for the weights'
// gradient.
TEST(AnalyticReplay, FewInputChannelsAreNotRoundedUp) {
  BlockOf b;
  b.block.trainable = true;
  b.block.tensors[0].shape = {8, 64, 64};
  b.block.params = {{.name = "w", .shape = {8, 8, 3, 3}}};
  b.op(OpKind::kConv2d, {0}, {8, 64, 64}, {0}, {1, 1});
  constexpr int64_t kEight = kImage / 2, kWeights = 8 * 8 * 9 * 4;
  EXPECT_EQ(b.replay(false, {}).forward, kImage);  // the rounded destination, then the output
  const auto workspace = replay_block(b.block, {false, true}, {true, false}, {});
  EXPECT_EQ(workspace.backward, kEight + kWeights + kEight);
}

TEST(AnalyticReplay, ASmallImageIsConvolvedByUnrollingItsPatches) {
  BlockOf b;
  b.block.params = {{.name = "w", .shape = {8, 8, 3, 3}}};
  b.op(OpKind::kConv2d, {0}, {8, 4, 4}, {0}, {1, 1});
  EXPECT_EQ(b.replay(false, {}).forward, 9 * kTensor);
}

TEST(AnalyticReplay, PointwiseConvolutionIsAPlainProductOnCpu) {
  BlockOf b;
  b.block.params = {{.name = "w", .shape = {8, 8, 1, 1}}};
  b.op(OpKind::kConv2d, {0}, {8, 4, 4}, {0}, {1, 0});
  EXPECT_EQ(b.replay(false, {}).forward, 0);
  EXPECT_EQ(b.replay(false, {}, {.cuda = true}).forward, kTensor + 8 * 8 * 4);
}

TEST(AnalyticReplay, GegluNeedsATemporary) {
  BlockOf b;
  b.block.tensors[0].shape = {4, 16};
  b.op(OpKind::kGeglu, {0}, {4, 8});
  EXPECT_EQ(b.replay(false, {}).forward, 4 * 8 * 4);
  EXPECT_EQ(b.replay(true, {0}).forward, 4 * 8 * 4);
}

TEST(AnalyticReplay, BackwardOfAChainHoldsTwoGradientsAtATime) {
  BlockOf b;
  b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {b.op(OpKind::kSilu, {0})})});
  // The output's gradient is the caller's; the last step holds a gradient beside that of the input.
  // Two of the three kept tensors are free by then, the peak is before that.
  EXPECT_EQ(b.replay(true, {0, 1, 2}).backward, 0);
}

TEST(AnalyticReplay, AnAdditionsGradientIsOneStorage) {
  BlockOf b;
  const int branch = b.op(OpKind::kUpsampleNearest2x, {0});
  b.op(OpKind::kAdd, {0, branch});
  // Branch gradient and the sum at the input, made beside the output's gradient that the caller
  // holds.
  EXPECT_EQ(b.replay(true, {}).backward, kTensor);
}

TEST(AnalyticReplay, WeightGradientsLiveUntilTheBackwardPassEnds) {
  BlockOf b;
  b.block.trainable = true;
  b.block.params = {{.name = "w", .shape = {4, 4}}, {.name = "v", .shape = {4, 4}}};
  b.block.tensors[0].shape = {1, 4};
  b.op(OpKind::kLinear, {b.op(OpKind::kLinear, {0}, {1, 4}, {0})}, {1, 4}, {1});
  EXPECT_EQ(b.replay(true, {0, 1}).backward, 2 * 4 * 4 * 4);
}

TEST(AnalyticReplay, NoGradientNoBackward) {
  BlockOf b;
  b.op(OpKind::kSilu, {0});
  EXPECT_EQ(b.replay(false, {}).backward, 0);
}

// Two heads over 16 rows of 8: scores of 2 * 16 * 16 * 4 bytes, operands of 16 * 8 * 4.
BlockOf attention_of(int64_t rows) {
  BlockOf b;
  b.block.tensors[0].shape = {rows, 8};
  b.op(OpKind::kAttention, {0, 0, 0}, {rows, 8}, {}, {2, 0});
  return b;
}
constexpr int64_t kScores = 2048, kRows = 512;
const ReplayOptions kMathOptions{.attention = AttentionKernel::kMath};

TEST(AnalyticReplay, MathAttentionMakesASecondScoreMatrix) {
  const BlockOf b = attention_of(16);
  // Nothing kept: both score matrices and the scaled q and k are scratch.
  EXPECT_EQ(b.replay(false, {}, kMathOptions).forward, 2 * kScores + 2 * kRows);
  EXPECT_EQ(b.replay(true, {0}, kMathOptions).forward, kScores);
  // Gradients of scores and softmax; those of q, k and v beside the input's.
  EXPECT_EQ(b.replay(true, {0}, kMathOptions).backward, 2 * kScores + 2 * kRows);
}

TEST(AnalyticReplay, MathAttentionOfHalfPrecisionCopiesItsOperands) {
  BlockOf b = attention_of(16);
  for (LocalTensor& tensor : b.block.tensors) tensor.dtype = DType::kF16;
  // Beside the scores: the result in fp32, then all gradients in fp32, then in fp16.
  EXPECT_EQ(b.replay(true, {}, kMathOptions).forward, kScores + kRows);
  EXPECT_EQ(b.replay(true, {}, kMathOptions).backward, 2 * kScores + 4 * kRows + 2 * kRows / 2);
}

TEST(AnalyticReplay, MathAttentionGrowsWithTheSquareOfItsRows) {
  const int64_t once = attention_of(64).replay(true, {0}, kMathOptions).backward;
  const int64_t twice = attention_of(128).replay(true, {0}, kMathOptions).backward;
  EXPECT_GT(twice, 3 * once);
}

}  // namespace
}  // namespace stagecraft
