// The promise of the pipeline: any number of stages, any schedule, the same bits as one stage.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "tests/pipeline/checks.h"
#include "tests/support/action_lists.h"
#include "tests/support/small_model.h"
#include "tests/support/training_world.h"

namespace stagecraft {
namespace {

using testing::actions_of;

constexpr int64_t kWidth = 128, kHeight = 64;  // not square: a swap of the two would show

BlockGraph graph_of(const TrainableChoice& choice) {
  return training_graph(small_model(), kWidth, kHeight, choice);
}

class GradientBitsLarge : public ::testing::TestWithParam<TrainableChoice> {};
class WholeGridSlow : public ::testing::TestWithParam<TrainableChoice> {};

// p x m x schedule, each against one stage.
void compare_grid(const TrainableChoice& choice, TrainingRun run, bool uneven) {
  const BlockGraph graph = graph_of(choice);
  for (const int micro_batches : {1, 2, 5, 8}) {
    run.micro_batch = 2;
    run.batch = 2 * micro_batches - (uneven ? 1 : 0);
    run.placement = contiguous_placement(graph, 1);
    const TrainingResult reference = train(small_model(), graph, run);
    for (const int stages : {1, 2, 3, 4}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        SCOPED_TRACE(
            fmt::format("p={} m={} uneven={} {}", stages, micro_batches, uneven, schedule));
        run.placement = contiguous_placement(graph, stages);
        run.placement.relays = stages > 2 && micro_batches % 2 == 1;
        run.schedule = schedule;
        expect_same_training(train(small_model(), graph, run), reference);
      }
    }
  }
}

// Gradients before clipping, and the weights after one step.
TEST_P(GradientBitsLarge, EqualOneStageForEveryPipeline) {
  for (const bool uneven : {false, true}) compare_grid(GetParam(), {}, uneven);
}

TEST_P(WholeGridSlow, WeightsLossesAndNormsOfTwentyStepsEqualOneStage) {
  TrainingRun run;
  run.steps = 20;
  run.optimizer.max_grad_norm = 0.05;
  run.optimizer.warmup_steps = 5;
  const auto start = std::chrono::steady_clock::now();
  for (const bool uneven : {false, true}) compare_grid(GetParam(), run, uneven);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  fmt::print("{}: 64 pipelines of 20 steps in {:.0f} s\n", GetParam().name, wall.count());
}

INSTANTIATE_TEST_SUITE_P(Choices, WholeGridSlow, ::testing::ValuesIn(kTrainableChoices),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(Choices, GradientBitsLarge, ::testing::ValuesIn(kTrainableChoices),
                         [](const auto& info) { return info.param.name; });

enum Factor { kStages, kMicroBatches, kUneven, kSchedule, kChoice, kFactors };
using Combination = std::array<int, kFactors>;
constexpr const char* kSchedules[] = {"gpipe", "1f1b"};

constexpr Combination kCombinations[] = {
    {2, 1, 0, 1, 2}, {2, 1, 1, 0, 1}, {2, 2, 1, 1, 3}, {2, 5, 0, 1, 0},
    {2, 5, 0, 1, 2}, {2, 8, 1, 1, 0}, {3, 1, 0, 0, 3}, {3, 2, 1, 0, 0},
    {3, 5, 1, 0, 3}, {3, 8, 0, 1, 1}, {3, 8, 1, 0, 2}, {4, 1, 0, 1, 0},
    {4, 2, 0, 0, 2}, {4, 2, 1, 1, 1}, {4, 5, 0, 0, 1}, {4, 8, 0, 1, 3},
};

constexpr bool every_pair_of_values_occurs() {
  for (int a = 0; a < kFactors; ++a) {
    for (int b = 0; b < a; ++b) {
      for (const Combination& first : kCombinations) {
        for (const Combination& second : kCombinations) {
          bool occurs = false;
          for (const Combination& c : kCombinations) {
            occurs = occurs || (c[a] == first[a] && c[b] == second[b]);
          }
          if (!occurs) return false;
        }
      }
    }
  }
  return true;
}
static_assert(every_pair_of_values_occurs());

class WeightBitsLarge : public ::testing::TestWithParam<Combination> {};

TEST_P(WeightBitsLarge, EqualOneStageAfterTwentySteps) {
  const Combination& with = GetParam();
  const BlockGraph graph = graph_of(kTrainableChoices[with[kChoice]]);
  TrainingRun run{.placement = contiguous_placement(graph, 1), .order = {}};
  run.micro_batch = 2;
  run.batch = 2 * with[kMicroBatches] - with[kUneven];
  run.steps = 20;
  run.optimizer.max_grad_norm = 0.05;
  run.optimizer.warmup_steps = 5;
  const TrainingResult reference = train(small_model(), graph, run);
  run.placement = contiguous_placement(graph, with[kStages]);
  run.placement.relays = with[kMicroBatches] > 2;
  run.schedule = kSchedules[with[kSchedule]];
  const TrainingResult result = train(small_model(), graph, run);
  expect_same_training(result, reference);
}

INSTANTIATE_TEST_SUITE_P(Pairwise, WeightBitsLarge, ::testing::ValuesIn(kCombinations),
                         [](const auto& info) {
                           const Combination& c = info.param;
                           return fmt::format("p{}_m{}_{}_{}_{}", c[kStages], c[kMicroBatches],
                                              c[kUneven] ? "uneven" : "even",
                                              kSchedules[c[kSchedule]],
                                              kTrainableChoices[c[kChoice]].name);
                         });

TEST(Recompute, ChangesNoBit) {
  const BlockGraph graph = graph_of(kUnlocked);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  const TrainingResult reference = train(small_model(), graph, run);
  for (size_t b = 0; b < graph.blocks.size(); b += 2) run.placement.recompute[b] = true;
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

TEST(ExplicitOrder, TwoStagesOnEachOfTwoRanksEqualOneStage) {
  const BlockGraph graph = graph_of(kUnlocked);
  TrainingRun run{.placement = contiguous_placement(graph, 1), .order = {}};
  run.batch = 2;
  const TrainingResult reference = train(small_model(), graph, run);
  run.placement = contiguous_placement(graph, 4);
  run.placement.rank_of_stage = {0, 1, 0, 1};
  const bool first_stage_has_gradients = [&] {
    for (const int block : run.placement.blocks_run_by(graph, 0)) {
      if (graph.blocks[static_cast<size_t>(block)].state != BlockState::kF) return true;
    }
    return false;
  }();
  run.order = {actions_of("F0.0 F0.1 F2.0 F2.1 B2.0 B2.1"),
               actions_of("F1.0 F1.1 F3.0 B3.0 F3.1 B3.1 B1.0 B1.1 step")};
  if (first_stage_has_gradients) {
    run.order[0].push_back(parse_action("B0.0"));
    run.order[0].push_back(parse_action("B0.1"));
  }
  run.order[0].push_back(parse_action("step"));
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

TEST(SplitBackward, InputsThenWeightsEqualBoth) {
  const BlockGraph graph = graph_of(kWholeUNet);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  run.batch = 2;
  const TrainingResult reference = train(small_model(), graph, run);
  run.order = {actions_of("F0.0 F0.1 I0.0 I0.1 W0.0 W0.1 step"),
               actions_of("F1.0 I1.0 F1.1 I1.1 W1.0 W1.1 step")};
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

TEST(NoneGradients, ZeroConvolutionsThatNeverRunHaveNoneAndKeepTheirBits) {
  check_none_gradients();
}

}  // namespace

void check_same_bits_as_one_stage(const TrainableChoice& choice) {
  const BlockGraph graph = graph_of(choice);
  TrainingRun run{.placement = contiguous_placement(graph, 1), .order = {}};
  run.batch = 5;
  run.micro_batch = 2;
  run.optimizer.max_grad_norm = 0.05;
  const TrainingResult one_stage = train(small_model(), graph, run);
  run.placement = contiguous_placement(graph, 4);
  expect_same_training(train(small_model(), graph, run), one_stage);
}

void check_none_gradients() {
  const BlockGraph graph = graph_of(kOnlyMidControl);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  run.optimizer.weight_decay = 0.1;  // decay alone would change a weight that has no gradient
  const TrainingResult result = train(small_model(), graph, run);
  int none = 0;
  for (const Block& block : graph.blocks) {
    if (!block.trainable || block.reaches_loss) continue;
    for (const Param& param : block.params) {
      ++none;
      EXPECT_FALSE(result.gradients.at(param.name).defined()) << param.name;
      at::Tensor start = at::empty(param.shape, at::kFloat);
      training_weights()->read(
          param, {start.mutable_data_ptr<float>(), static_cast<size_t>(start.numel())});
      EXPECT_TRUE(same_bits(result.weights.at(param.name), start)) << param.name;
    }
  }
  EXPECT_EQ(none, 24);
}

}  // namespace stagecraft
