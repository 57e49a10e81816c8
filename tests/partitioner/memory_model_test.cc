// What each rank is predicted to hold, against numbers worked out by hand.
#include "partitioner/simulate/memory_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "partitioner/schedule/verifier.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"
#include "tests/support/made_up_costs.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::actions_of;
using testing::add_opaque_block;
using testing::chain_graph;
using testing::chain_placement;
using testing::uniform_costs;

// Values are 100 bytes a sample; blocks have 10 parameters.
std::vector<RankMemory> predict(const BlockGraph& graph, const Placement& placement,
                                const CostTable& costs, const std::vector<int64_t>& sizes,
                                const char* generator = "1f1b") {
  const auto order = generate_order(generator, graph, placement, static_cast<int>(sizes.size()));
  return predict_memory(graph, placement, ClusterCosts(costs),
                        std::vector<Device>(placement.ranks()),
                        insert_messages(graph, placement, order, sizes), sizes);
}

int64_t dynamic_of(const RankMemory& memory) {
  return (memory[MemoryLine::kActivations] + memory[MemoryLine::kRecompute] +
          memory[MemoryLine::kBoundary] + memory[MemoryLine::kWorkspace])
      .count;
}

Placement one_stage(int blocks) {
  Placement placement = chain_placement(blocks);
  placement.stage_of_block.assign(blocks, 0);
  placement.rank_of_stage = {0};
  return placement;
}

TEST(MemoryModel, StaticLinesAreFourByFourForTrainedBlocksAndWeightsOnlyForFrozen) {
  const BlockGraph graph = chain_graph(3, /*first_trainable=*/1);
  const RankMemory memory = predict(graph, one_stage(3), uniform_costs(graph), {1})[0];
  EXPECT_EQ(memory[MemoryLine::kWeights].count, 3 * 40);
  EXPECT_EQ(memory[MemoryLine::kGradients].count, 2 * 40);
  EXPECT_EQ(memory[MemoryLine::kOptimizer].count, 2 * 80);
  EXPECT_EQ(memory[MemoryLine::kMasterWeights].count, 0);
}

TEST(MemoryModel, MixedPrecisionHalvesWeightsAndAddsMasters) {
  const BlockGraph graph = chain_graph(3, /*first_trainable=*/1);
  CostTable costs = uniform_costs(graph);
  costs.precision = "fp16";
  const RankMemory memory = predict(graph, one_stage(3), costs, {1})[0];
  EXPECT_EQ(memory[MemoryLine::kWeights].count, 3 * 20);
  EXPECT_EQ(memory[MemoryLine::kMasterWeights].count, 2 * 40);
  EXPECT_EQ(memory[MemoryLine::kGradients].count, 2 * 40);
}

TEST(MemoryModel, BlockWithoutPathToTheLossHoldsItsWeightsOnly) {
  BlockGraph graph = testing::empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {a}, true);
  derive_states(graph);
  const RankMemory memory = predict(graph, one_stage(3), uniform_costs(graph), {1})[0];
  EXPECT_EQ(memory[MemoryLine::kWeights].count, 3 * 40);
  EXPECT_EQ(memory[MemoryLine::kGradients].count, 2 * 40);
  EXPECT_EQ(memory[MemoryLine::kOptimizer].count, 2 * 80);
}

TEST(MemoryModel, ReplicatedBlockIsHeldOnEveryRankThatRunsIt) {
  BlockGraph graph = testing::empty_graph();
  const int time = add_opaque_block(graph, {0}, false);
  const int a = add_opaque_block(graph, {0, time}, true);
  graph.output = add_opaque_block(graph, {a, time}, true);
  derive_states(graph);
  Placement placement = chain_placement(3);
  placement.stage_of_block = {-1, 0, 1};
  placement.rank_of_stage = {0, 1};
  const auto memory = predict(graph, placement, uniform_costs(graph), {1});
  EXPECT_EQ(memory[0][MemoryLine::kWeights].count, 80);
  EXPECT_EQ(memory[1][MemoryLine::kWeights].count, 80);
}

TEST(MemoryModel, FrozenChainHoldsTwoValuesAtATime) {
  BlockGraph graph = chain_graph(4, /*first_trainable=*/3);
  const RankMemory memory = predict(graph, one_stage(4), uniform_costs(graph), {1})[0];
  // Most is at the loss: prediction, noise and error.
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 300);
}

TEST(MemoryModel, ForwardWorkspaceStandsOnInputOutputAndSaved) {
  BlockGraph graph = chain_graph(1);
  CostTable costs = uniform_costs(graph);
  costs.blocks["block0"].saved_internal = {1000};
  costs.blocks["block0"].workspace_forward = {5000};
  const RankMemory memory = predict(graph, one_stage(1), costs, {1})[0];
  EXPECT_EQ(memory[MemoryLine::kWorkspace].count, 5000);
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 100 + 100 + 1000);
}

TEST(MemoryModel, BackwardWorkspaceStandsOnSavedOutputGradientAndInputGradients) {
  BlockGraph graph = chain_graph(2);
  CostTable costs = uniform_costs(graph);
  costs.blocks["block1"].saved_internal = {1000};
  costs.blocks["block1"].keeps_input = {true};
  costs.blocks["block1"].workspace_backward = {5000};
  const RankMemory memory = predict(graph, one_stage(2), costs, {1})[0];
  EXPECT_EQ(memory[MemoryLine::kWorkspace].count, 5000);
  // Saved, the kept input, the output's gradient and the input's.
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 1000 + 100 + 100 + 100);
}

TEST(MemoryModel, ValueKeptByTwoBlocksCountsOnce) {
  BlockGraph graph = testing::empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {b, a}, true);
  derive_states(graph);
  CostTable costs = uniform_costs(graph);
  costs.blocks["block2"].workspace_backward = {100000};  // the peak
  auto activations = [&](bool output0, bool input1, bool input2) {
    costs.blocks["block0"].keeps_output = output0;
    costs.blocks["block1"].keeps_input = {input1};
    costs.blocks["block2"].keeps_input = {false, input2};
    return predict(graph, one_stage(3), costs, {1})[0][MemoryLine::kActivations].count;
  };
  const int64_t none = activations(false, false, false);
  EXPECT_EQ(none, 300);  // gradients of the prediction, of b and of a
  EXPECT_EQ(activations(true, false, false), none + 100);
  EXPECT_EQ(activations(true, true, true), none + 100);
}

TEST(MemoryModel, OneForwardOneBackwardHoldsAsManyMicroBatchesAsAreInFlight) {
  for (int p = 1; p <= 5; ++p) {
    for (int m : {1, 2, 3, 8}) {
      const BlockGraph graph = chain_graph(p);
      CostTable costs = uniform_costs(graph);
      for (auto& [name, cost] : costs.blocks) cost.saved_internal = {1'000'000};
      const auto memory = predict(graph, chain_placement(p), costs, std::vector<int64_t>(m, 1));
      for (int s = 0; s < p; ++s) {
        EXPECT_EQ(memory[s][MemoryLine::kActivations].count / 1'000'000, std::min(m, p - s));
      }
    }
  }
}

TEST(MemoryModel, GpipeHoldsAllMicroBatches) {
  const BlockGraph graph = chain_graph(3);
  CostTable costs = uniform_costs(graph);
  for (auto& [name, cost] : costs.blocks) cost.saved_internal = {1'000'000};
  for (const RankMemory& memory :
       predict(graph, chain_placement(3), costs, std::vector<int64_t>(7, 1), "gpipe")) {
    EXPECT_EQ(memory[MemoryLine::kActivations].count / 1'000'000, 7);
  }
}

TEST(MemoryModel, RecomputeKeepsInputsAndRebuildsOneBlockAtATime) {
  const BlockGraph graph = chain_graph(4);
  CostTable costs = uniform_costs(graph);
  for (auto& [name, cost] : costs.blocks) {
    cost.saved_internal = {10'000};
    cost.workspace_backward = {7};
  }
  Placement placement = one_stage(4);
  EXPECT_EQ(predict(graph, placement, costs, {1})[0][MemoryLine::kActivations].count, 40'000 + 300);
  placement.recompute.assign(4, true);
  const RankMemory memory = predict(graph, placement, costs, {1})[0];
  EXPECT_EQ(memory[MemoryLine::kRecompute].count,
            10'000 + 100);  // saved, and the output that is made again
  // Inputs of all four blocks and the prediction's gradient.
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 4 * 100 + 100);
}

TEST(MemoryModel, SmallerLastMicroBatchHoldsLess) {
  const BlockGraph graph = chain_graph(1);
  CostTable costs = uniform_costs(graph);
  costs.micro_batch = 4;
  costs.blocks["block0"].saved_internal = {4000};
  auto activations = [&](const std::vector<int64_t>& sizes) {
    return predict(graph, one_stage(1), costs, sizes, "gpipe")[0][MemoryLine::kActivations].count;
  };
  // GPipe: the first's saved tensors and gradient; the last's saved tensors, prediction, noise,
  // error.
  EXPECT_EQ(activations({4, 4}), (4000 + 400) + (4000 + 3 * 400));
  EXPECT_EQ(activations({4, 1}), (4000 + 400) + (1000 + 3 * 100));
}

TEST(MemoryModel, ReceivedTensorsCountFromTheirPostingOn) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  const CostTable costs = uniform_costs(graph);
  const std::vector<int64_t> sizes(4, 1);
  auto boundary = [&](const char* first, const char* second) {
    const Schedule schedule =
        complete_order(graph, chain_placement(2), {actions_of(first), actions_of(second)}, sizes);
    return predict_memory(graph, chain_placement(2), ClusterCosts(costs), std::vector<Device>(2),
                          schedule, sizes)[1][MemoryLine::kBoundary]
        .count;
  };
  const char* sender = "F0.0 S0 F0.1 S1 F0.2 S2 F0.3 S3 step";
  // The peak is at the first loss, when three of the four are still unused.
  EXPECT_EQ(boundary(sender, "R0 R1 R2 R3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 step"), 300);
  EXPECT_EQ(boundary(sender, "R0 F1.0 B1.0 R1 F1.1 B1.1 R2 F1.2 B1.2 R3 F1.3 B1.3 step"), 0);
}

TEST(MemoryModel, AMessageLeavesTheBoundaryWithItsFirstTensorThatIsUsed) {
  BlockGraph graph = testing::empty_graph();
  const int a = add_opaque_block(graph, {0}, false);
  const int b = add_opaque_block(graph, {0}, false);
  const int c = add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {c, b}, true);
  derive_states(graph);
  Placement placement = chain_placement(4);
  placement.stage_of_block = {0, 0, 1, 1};
  placement.rank_of_stage = {0, 1};
  CostTable costs = uniform_costs(graph);
  costs.blocks["block2"].workspace_forward = {5000};  // the peak: b is there and waits
  const RankMemory memory = predict(graph, placement, costs, {1})[1];
  EXPECT_EQ(memory[MemoryLine::kBoundary].count, 0);
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 300);  // a, b and what block2 makes
}

TEST(MemoryModel, AtMostFourSendsKeepTheirTensors) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  const Schedule schedule =
      complete_order(graph, chain_placement(2),
                     {actions_of("F0.0 S0 F0.1 S1 F0.2 S2 F0.3 S3 F0.4 S4 F0.5 S5 step"),
                      actions_of("R0 R1 R2 R3 R4 R5 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F1.4 "
                                 "B1.4 F1.5 B1.5 step")},
                     std::vector<int64_t>(6, 1));
  const RankMemory memory =
      predict_memory(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                     std::vector<Device>(2), schedule, std::vector<int64_t>(6, 1))[0];
  EXPECT_EQ(memory[MemoryLine::kBoundary].count, 400);
  EXPECT_EQ(memory[MemoryLine::kActivations].count, 200);  // the next one's input and output
}

TEST(MemoryModel, BaseBuffersAndSlackComeFromTheDevice) {
  const BlockGraph graph = chain_graph(3);
  const Placement placement = chain_placement(3);
  std::vector<Device> devices(3);
  devices[1].base = {1000};
  devices[1].comm_buffer_per_peer = {64};
  devices[1].slack_fraction = 0.5;
  const Schedule schedule =
      insert_messages(graph, placement, generate_order("1f1b", graph, placement, 2), {1, 1});
  const RankMemory memory = predict_memory(graph, placement, ClusterCosts(uniform_costs(graph)),
                                           devices, schedule, {1, 1})[1];
  EXPECT_EQ(memory[MemoryLine::kProcessBase].count, 1000);
  EXPECT_EQ(memory[MemoryLine::kCommBuffers].count, 4 * 64);  // two peers, both directions
  EXPECT_EQ(memory[MemoryLine::kSlack].count, (dynamic_of(memory) + 1) / 2);
  EXPECT_EQ(memory.total().count - memory.without_base().count, 1000);
}

TEST(MemoryModel, EveryRankHoldsWhatItsDeviceSaves) {
  const BlockGraph graph = chain_graph(2);
  CostTable lean = uniform_costs(graph), wasteful = lean;
  for (auto& [name, cost] : wasteful.blocks) cost.workspace_backward = {5000};
  const Schedule schedule = insert_messages(
      graph, chain_placement(2), generate_order("1f1b", graph, chain_placement(2), 1), {1});
  const auto memory =
      predict_memory(graph, chain_placement(2), ClusterCosts({lean, wasteful}, {1, 0}),
                     std::vector<Device>(2), schedule, {1});
  EXPECT_EQ(memory[0][MemoryLine::kWorkspace].count, 5000);
  EXPECT_EQ(memory[1][MemoryLine::kWorkspace].count, 0);
}

TEST(MemoryModel, LinesHaveDistinctNames) {
  std::set<std::string_view> names, keys;
  for (int i = 0; i < kMemoryLines; ++i) {
    names.insert(to_string(static_cast<MemoryLine>(i)));
    keys.insert(key_of(static_cast<MemoryLine>(i)));
  }
  EXPECT_EQ(names.size(), size_t{kMemoryLines});
  EXPECT_EQ(keys.size(), size_t{kMemoryLines});
}

// The replay itself checks that nothing is used before it is there, and that nothing is left at the
// end.
TEST(MemoryModel, EveryRandomScheduleEndsWithNothingLeftOver) {
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 18});
    const int stages = 1 + static_cast<int>(seed % 6);
    const Placement placement =
        testing::random_placement(graph, seed, stages, 1 + static_cast<int>(seed / 6) % stages);
    const CostTable costs = testing::random_costs(graph, seed);
    const std::vector<int64_t> sizes = {2, 2, 2, 1};
    for (const char* generator : {"gpipe", "1f1b"}) {
      auto order = generate_order(generator, graph, placement, 4);
      if (seed % 3 == 0) {  // split every backward
        for (auto& actions : order) {
          for (size_t i = 0; i < actions.size(); ++i) {
            if (actions[i].kind != ActionKind::kBackward) continue;
            actions[i].kind = ActionKind::kBackwardInput;
            Action weights = actions[i];
            weights.kind = ActionKind::kBackwardWeight;
            actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i) + 1, weights);
          }
        }
      }
      const Schedule schedule = insert_messages(graph, placement, order, sizes);
      ASSERT_TRUE(verify(graph, placement, sizes, schedule).empty());
      const std::vector<Device> devices(placement.ranks());
      EXPECT_NO_THROW(
          predict_memory(graph, placement, ClusterCosts(costs), devices, schedule, sizes))
          << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace stagecraft
