#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/error.h"
#include "partitioner/graph/graph.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

BlockState state_of(const BlockGraph& graph, const std::string& name) {
  return graph.blocks[graph.find_block(name)].state;
}

// Two branches that meet, as the frozen encoder and ControlNet do, a frozen tail, and a dead end.
BlockGraph branches() {
  return ToyGraph()
      .add("encoder", {"input.x"}, false)
      .add("control", {"input.x"}, true)
      .add("control2", {"control"}, true)
      .add("dead", {"control2"}, true)
      .add("join", {"encoder", "control2"}, false)
      .add("out", {"join", "control"}, false)
      .build("out");
}

std::string message_of(BlockGraph graph) {
  try {
    derive_states(graph);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "";
}

TEST(GraphDerive, StateFollowsFromTrainableAndGradientCarryingInputs) {
  const BlockGraph graph = branches();
  EXPECT_EQ(state_of(graph, "encoder"), BlockState::kF);
  EXPECT_EQ(state_of(graph, "control"), BlockState::kFW);
  EXPECT_EQ(state_of(graph, "control2"), BlockState::kFIW);
  EXPECT_EQ(state_of(graph, "join"), BlockState::kFI);
}

TEST(GraphDerive, ValueCarriesGradientWhenSomethingTrainableIsAbove) {
  const BlockGraph graph = branches();
  const auto carries = [&](const char* name) {
    return graph.values[graph.blocks[graph.find_block(name)].output].carries_grad;
  };
  EXPECT_FALSE(carries("encoder"));
  EXPECT_TRUE(carries("control"));
  EXPECT_TRUE(carries("out"));
  EXPECT_FALSE(graph.values[graph.blocks[0].inputs[0]].carries_grad);
}

TEST(GraphDerive, BlockWithoutPathToTheLossIsMarkedAndCarriesNoGradient) {
  const BlockGraph graph = branches();
  const Block& dead = graph.blocks[graph.find_block("dead")];
  EXPECT_FALSE(dead.reaches_loss);
  EXPECT_EQ(dead.state, BlockState::kF);
  EXPECT_FALSE(graph.values[dead.output].carries_grad);
}

TEST(GraphDerive, GradientConsumersLeaveOutBlocksWithoutPathToTheLoss) {
  const BlockGraph graph = branches();
  const int control2 = graph.blocks[graph.find_block("control2")].output;
  EXPECT_THAT(graph.values[control2].consumers,
              ElementsAre(graph.find_block("dead"), graph.find_block("join")));
  EXPECT_THAT(graph.gradient_consumers(control2), ElementsAre(graph.find_block("join")));
  EXPECT_THAT(graph.gradient_consumers(graph.blocks[0].output), IsEmpty());
}

TEST(GraphDerive, ValueUsedTwiceByOneBlockHasOneConsumer) {
  const BlockGraph graph =
      ToyGraph().add("a", {"input.x"}, true).add("b", {"a", "a"}, true).build("b");
  EXPECT_THAT(graph.values[graph.blocks[0].output].consumers, ElementsAre(1));
}

TEST(GraphDerive, DerivingTwiceChangesNothing) {
  const BlockGraph once = branches();
  BlockGraph twice = once;
  derive_states(twice);
  EXPECT_EQ(once, twice);
}

TEST(GraphDerive, RefusesBlocksOutOfOrder) {
  BlockGraph graph = branches();
  std::swap(graph.blocks[1], graph.blocks[2]);
  for (int b : {1, 2}) graph.values[graph.blocks[b].output].producer = b;
  EXPECT_THAT(message_of(graph), HasSubstr("control2 (position 1) reads control"));
}

TEST(GraphDerive, RefusesIndexOutOfRange) {
  BlockGraph graph = branches();
  graph.blocks[4].inputs[1] = 99;
  EXPECT_THAT(message_of(graph), HasSubstr("join: input 99 of"));
}

TEST(GraphDerive, RefusesProducerThatDoesNotWriteTheValue) {
  BlockGraph graph = branches();
  graph.values[graph.blocks[0].output].producer = -1;
  EXPECT_THAT(message_of(graph), HasSubstr("value encoder names block -1"));
}

TEST(GraphDerive, RefusesRepeatedNames) {
  BlockGraph graph = branches();
  graph.blocks[2].name = "control";
  EXPECT_THAT(message_of(graph), HasSubstr("two blocks are named control"));
  graph = branches();
  graph.blocks[2].params[0].name = "control.weight";
  EXPECT_THAT(message_of(graph), HasSubstr("two parameters are named control.weight"));
}

TEST(GraphDerive, RefusesTensorWrittenTwice) {
  BlockGraph graph = branches();
  graph.blocks[4].ops.push_back(graph.blocks[4].ops.back());
  EXPECT_THAT(message_of(graph), HasSubstr("already written"));
}

TEST(GraphDerive, RefusesTensorReadBeforeItIsWritten) {
  BlockGraph graph = branches();
  std::swap(graph.blocks[4].ops[0], graph.blocks[4].ops[1]);
  EXPECT_THAT(message_of(graph), HasSubstr("before it is written"));
}

TEST(GraphDerive, RefusesOutputShapeThatDiffersFromTheValue) {
  BlockGraph graph = branches();
  graph.blocks[5].tensors.back().shape = {4};
  EXPECT_THAT(message_of(graph), HasSubstr("out: output tensor [4] fp32 is not value out [8]"));
}

TEST(GraphDerive, RefusesInputShapeThatDiffersFromTheValue) {
  BlockGraph graph = branches();
  graph.blocks[5].tensors[0].dtype = DType::kF16;
  EXPECT_THAT(message_of(graph), HasSubstr("out: input tensor [8] fp16 is not value join"));
}

TEST(GraphDerive, RefusesUnusedParameter) {
  BlockGraph graph = branches();
  graph.blocks[5].params.push_back({.name = "out.bias", .shape = {8}});
  EXPECT_THAT(message_of(graph), HasSubstr("no operation uses parameter out.bias"));
}

TEST(GraphDerive, RefusesOperationWithWrongNumberOfArguments) {
  BlockGraph graph = branches();
  graph.blocks[0].ops[0].params.clear();
  EXPECT_THAT(message_of(graph), HasSubstr("encoder: operation 0 (linear)"));
}

TEST(GraphDerive, RefusesOutputThatNoBlockMakes) {
  BlockGraph graph = branches();
  graph.output = graph.blocks[0].inputs[0];
  EXPECT_THAT(message_of(graph), HasSubstr("is not made by a block"));
}

TEST(GraphHash, IsEqualForEqualGraphsAndChangesWithEachThingThatMatters) {
  const BlockGraph graph = branches();
  EXPECT_EQ(graph_hash(graph), graph_hash(branches()));
  EXPECT_EQ(graph_hash(graph).size(), 64u);
  const auto changed = [&](auto change) {
    BlockGraph other = branches();
    change(other);
    return graph_hash(other) != graph_hash(graph);
  };
  EXPECT_TRUE(changed([](BlockGraph& g) { g.blocks[1].trainable = false; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.blocks[1].name = "x"; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.blocks[1].params[0].shape = {64, 1}; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.blocks[1].ops[0].eps = 1e-6; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.values[1].dtype = DType::kF16; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.blocks[4].inputs[0] = 0; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.width = 128; }));
  EXPECT_TRUE(changed([](BlockGraph& g) { g.output = g.blocks[4].output; }));
}

TEST(GraphCounts, BytesScaleWithBatchAndDtype) {
  const Value value{.name = "v", .shape = {4, 8, 8}, .dtype = DType::kF16};
  EXPECT_EQ(value.bytes(3).count, 3 * 4 * 8 * 8 * 2);
}

TEST(GraphCounts, MacsOfConvolutionLinearAndAttention) {
  Block block;
  block.params = {{.name = "c", .shape = {8, 4, 3, 3}}, {.name = "l", .shape = {16, 6}}};
  block.tensors = {{.shape = {4, 10, 10}}, {.shape = {8, 5, 5}}, {.shape = {7, 6}},
                   {.shape = {7, 16}},     {.shape = {3, 16}},   {.shape = {7, 16}}};
  block.ops = {
      {.kind = OpKind::kConv2d, .inputs = {0}, .output = 1, .params = {0}, .ints = {2, 1}}};
  EXPECT_EQ(block.macs(), 8 * 25 * 4 * 9);
  block.ops = {{.kind = OpKind::kLinear, .inputs = {2}, .output = 3, .params = {1}}};
  EXPECT_EQ(block.macs(), 7 * 16 * 6);
  block.ops = {{.kind = OpKind::kAttention, .inputs = {3, 4, 4}, .output = 5, .ints = {2, 0}}};
  EXPECT_EQ(block.macs(), 2 * 7 * 3 * 16);
}

}  // namespace
}  // namespace stagecraft
