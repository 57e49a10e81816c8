// The promise of the pipeline: any number of stages, any schedule, the same bits as one stage.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/small_model.h"
#include "tests/support/training_world.h"

namespace stagecraft {
namespace {

constexpr int64_t kWidth = 128, kHeight = 64;  // not square: a swap of the two would show

struct TrainableChoice {
  const char* name;
  TrainableConfig config;
};

const TrainableChoice kChoices[] = {
    {"controlnet", {}},
    {"controlnet_and_decoder",
     {.what = "controlnet", .sd_locked = false, .only_mid_control = false}},
    {"only_mid_control", {.what = "controlnet", .sd_locked = true, .only_mid_control = true}},
    {"whole_unet", {.what = "unet", .sd_locked = true, .only_mid_control = false}},
};

BlockGraph graph_of(const TrainableChoice& choice) {
  return build_training_graph(small_model(), kWidth, kHeight, choice.config);
}

class GradientBits : public testing::TestWithParam<TrainableChoice> {};

// p x m x uneven x schedule, gradients before clipping after one step.
TEST_P(GradientBits, EqualOneStageForEveryPipeline) {
  const BlockGraph graph = graph_of(GetParam());
  for (const int micro_batches : {1, 2, 5, 8}) {
    for (const bool uneven : {false, true}) {
      TrainingRun run{.placement = contiguous_placement(graph, 1), .order = {}};
      run.micro_batch = 2;
      run.batch = 2 * micro_batches - (uneven ? 1 : 0);
      const TrainingResult reference = train(small_model(), graph, run);
      for (const int stages : {1, 2, 3, 4}) {
        for (const char* schedule : {"gpipe", "1f1b"}) {
          SCOPED_TRACE(
              fmt::format("p={} m={} uneven={} {}", stages, micro_batches, uneven, schedule));
          run.placement = contiguous_placement(graph, stages);
          run.schedule = schedule;
          const TrainingResult result = train(small_model(), graph, run);
          expect_same_bits(result.gradients, reference.gradients, "gradient");
          EXPECT_EQ(result.losses, reference.losses);
          EXPECT_EQ(result.norms, reference.norms);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Choices, GradientBits, testing::ValuesIn(kChoices),
                         [](const auto& info) { return info.param.name; });

struct Combination {
  int stages, micro_batches;
  bool uneven;
  const char* schedule;
  int choice;
};

class WeightBits : public testing::TestWithParam<Combination> {};

TEST_P(WeightBits, EqualOneStageAfterTwentySteps) {
  const Combination& with = GetParam();
  const BlockGraph graph = graph_of(kChoices[with.choice]);
  TrainingRun run{.placement = contiguous_placement(graph, 1), .order = {}};
  run.micro_batch = 2;
  run.batch = 2 * with.micro_batches - (with.uneven ? 1 : 0);
  run.steps = 20;
  run.optimizer.max_grad_norm = 0.05;
  run.optimizer.warmup_steps = 5;
  const TrainingResult reference = train(small_model(), graph, run);
  run.placement = contiguous_placement(graph, with.stages);
  run.schedule = with.schedule;
  const TrainingResult result = train(small_model(), graph, run);
  expect_same_bits(result.weights, reference.weights, "weight");
  EXPECT_EQ(result.norms, reference.norms);
}

// Every pair of values of two of the five factors occurs.
INSTANTIATE_TEST_SUITE_P(
    Pairwise, WeightBits,
    testing::Values(Combination{2, 1, false, "gpipe", 0}, Combination{2, 2, true, "1f1b", 1},
                    Combination{2, 5, false, "1f1b", 2}, Combination{2, 8, true, "gpipe", 3},
                    Combination{3, 1, true, "1f1b", 2}, Combination{3, 2, false, "gpipe", 3},
                    Combination{3, 5, true, "gpipe", 0}, Combination{3, 8, false, "1f1b", 1},
                    Combination{4, 1, false, "1f1b", 3}, Combination{4, 2, true, "gpipe", 2},
                    Combination{4, 5, false, "gpipe", 1}, Combination{4, 8, true, "1f1b", 0}),
    [](const auto& info) {
      const Combination& c = info.param;
      return fmt::format("p{}_m{}_{}_{}_{}", c.stages, c.micro_batches,
                         c.uneven ? "uneven" : "even", c.schedule, kChoices[c.choice].name);
    });

TEST(Recompute, ChangesNoBit) {
  const BlockGraph graph = graph_of(kChoices[1]);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  const TrainingResult reference = train(small_model(), graph, run);
  for (size_t b = 0; b < graph.blocks.size(); b += 2) run.placement.recompute[b] = true;
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

std::vector<Action> actions_of(std::initializer_list<const char*> texts) {
  std::vector<Action> actions;
  for (const char* text : texts) actions.push_back(parse_action(text));
  return actions;
}

TEST(ExplicitOrder, TwoStagesOnEachOfTwoRanksEqualOneStage) {
  const BlockGraph graph = graph_of(kChoices[1]);
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
  run.order = {
      actions_of({"F0.0", "F0.1", "F2.0", "F2.1", "B2.0", "B2.1"}),
      actions_of({"F1.0", "F1.1", "F3.0", "B3.0", "F3.1", "B3.1", "B1.0", "B1.1", "step"})};
  if (first_stage_has_gradients) {
    run.order[0].push_back(parse_action("B0.0"));
    run.order[0].push_back(parse_action("B0.1"));
  }
  run.order[0].push_back(parse_action("step"));
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

TEST(SplitBackward, InputsThenWeightsEqualBoth) {
  const BlockGraph graph = graph_of(kChoices[3]);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  run.batch = 2;
  const TrainingResult reference = train(small_model(), graph, run);
  run.order = {actions_of({"F0.0", "F0.1", "I0.0", "I0.1", "W0.0", "W0.1", "step"}),
               actions_of({"F1.0", "I1.0", "F1.1", "I1.1", "W1.0", "W1.1", "step"})};
  expect_same_bits(train(small_model(), graph, run).gradients, reference.gradients, "gradient");
}

TEST(NoneGradients, ZeroConvolutionsThatNeverRunHaveNone) {
  const BlockGraph graph = graph_of(kChoices[2]);
  TrainingRun run{.placement = contiguous_placement(graph, 2), .order = {}};
  const TrainingResult result = train(small_model(), graph, run);
  int none = 0;
  for (const auto& [name, gradient] : result.gradients) none += gradient.defined() ? 0 : 1;
  EXPECT_EQ(none, 24);
}

}  // namespace
}  // namespace stagecraft
