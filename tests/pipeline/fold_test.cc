// The order in which gradients meet, written out by hand: ((g_n + g_n-1) + ...) + g_1 over the
// consumers of a value, last block position first (docs/execution.md).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "pipeline/exec/block_autograd.h"
#include "tests/pipeline/checks.h"
#include "tests/support/small_model.h"
#include "tests/support/training_world.h"
#include "tests/support/whole_graph.h"

namespace stagecraft {
namespace {

template <typename Items>
auto& entry(Items& items, int index) {
  return items[static_cast<size_t>(index)];
}

// Blocks one after another, every value and gradient kept until the end: nothing of stages, ranks
// or messages.
class ByHand {
 public:
  ByHand(const ModelConfig& model, const BlockGraph& graph, std::span<const Draw> draws)
      : graph_(graph),
        params_(read_weights(graph, *training_weights())),
        values_(graph.values.size()),
        contributions_(graph.values.size()) {
    require_gradients(graph, params_);
    RandomSamples samples = training_samples(model, graph);
    const at::Tensor latents = samples.latents(draws);
    noise_ = draw_noise(kTrainingSeed, draws, latents.sizes().slice(1));
    const at::Tensor timesteps = draw_timesteps(kTrainingSeed, draws, model.noise.timesteps);
    const TensorMap inputs = {
        {kInputNoisyLatents, add_noise(latents, noise_, timesteps, alphas_cumprod(model.noise))},
        {kInputTimesteps, timesteps},
        {kInputContext, samples.context(draws)},
        {kInputHint, samples.hint(draws)}};
    for (size_t v = 0; v < values_.size(); ++v) {
      if (graph.values[v].producer < 0) values_[v] = inputs.at(graph.values[v].name);
    }
  }

  TensorMap gradients() {
    std::vector<BlockTape> tapes(graph_.blocks.size());
    for (size_t b = 0; b < graph_.blocks.size(); ++b) {
      const Block& block = graph_.blocks[b];
      if (!block.reaches_loss) continue;
      std::vector<at::Tensor> inputs;
      for (const int value : block.inputs) inputs.push_back(entry(values_, value));
      if (block.state == BlockState::kF) {
        entry(values_, block.output) = forward_only(block, inputs, params_[b]);
        continue;
      }
      auto [output, tape] =
          forward_with_tape(block, inputs, params_[b], inputs_with_gradient(graph_, block));
      entry(values_, block.output) = std::move(output);
      tapes[b] = std::move(tape);
    }
    const at::Tensor error = entry(values_, graph_.output) - noise_;
    entry(contributions_, graph_.output) = {error * (2.0 / static_cast<double>(error.numel()))};

    TensorMap result;
    for (size_t b = graph_.blocks.size(); b-- > 0;) {
      const Block& block = graph_.blocks[b];
      if (!block.reaches_loss || block.state == BlockState::kF) continue;
      const BlockGradients gradients =
          backward_block(std::move(tapes[b]), fold(entry(contributions_, block.output)));
      for (size_t i = 0; i < block.inputs.size(); ++i) {
        if (!gradients.inputs[i].defined()) continue;
        entry(contributions_, block.inputs[i]).push_back(gradients.inputs[i]);
      }
      for (size_t p = 0; p < block.params.size(); ++p) {
        if (gradients.params[p].defined()) result[block.params[p].name] = gradients.params[p];
      }
    }
    return result;
  }

  size_t most_contributions() const {
    size_t most = 0;
    for (const auto& of_value : contributions_) most = std::max(most, of_value.size());
    return most;
  }

 private:
  // Contributions stand in the order of the backward walk: last consumer first.
  static at::Tensor fold(const std::vector<at::Tensor>& contributions) {
    at::Tensor sum = contributions.at(0);
    for (size_t i = 1; i < contributions.size(); ++i) sum = sum + contributions[i];
    return sum;
  }

  const BlockGraph& graph_;
  BlockTensors params_;
  at::Tensor noise_;
  std::vector<at::Tensor> values_;
  std::vector<std::vector<at::Tensor>> contributions_;  // by value
};

class FoldOrder : public ::testing::TestWithParam<TrainableChoice> {};

TEST_P(FoldOrder, GradientsHaveTheBitsOfAFoldByHand) { check_fold_order(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Choices, FoldOrder, ::testing::ValuesIn(kTrainableChoices),
                         [](const auto& info) { return info.param.name; });

}  // namespace

void check_fold_order(const TrainableChoice& choice) {
  at::set_num_threads(1);
  const BlockGraph graph = training_graph(small_model(), 64, 128, choice);
  TrainingRun run{.placement = contiguous_placement(graph, 4), .order = {}};
  run.batch = run.micro_batch = 2;
  ByHand by_hand(small_model(), graph,
                 SampleOrder(kTrainingSeed, kTrainingSamples).batch_of_step(run.batch, 0));
  TensorMap ours = train(small_model(), graph, run).gradients;
  std::erase_if(ours, [](const auto& entry) { return !entry.second.defined(); });
  expect_same_bits(ours, by_hand.gradients(), "gradient");
  EXPECT_GE(by_hand.most_contributions(), 3u) << "two can be added in either order";
}

}  // namespace stagecraft
