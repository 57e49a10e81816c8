// Trains a graph in this process, ranks as threads over the strict in-process communicator, on
// random samples: what the bitwise tests compare.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "models/network/build.h"
#include "models/weights/weight_source.h"
#include "partitioner/base/mistakes.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/verifier.h"
#include "pipeline/comm/in_process.h"
#include "pipeline/exec/autograd_runner.h"
#include "pipeline/exec/optimizer.h"
#include "pipeline/exec/rank_executor.h"

namespace stagecraft {

struct TrainingRun {
  Placement placement;
  std::string schedule = "1f1b";           // generator, unless `order` is given
  std::vector<std::vector<Action>> order;  // explicit compute order
  int64_t batch = 4, micro_batch = 1;
  int steps = 1;
  OptimizerConfig optimizer{.learning_rate = 1e-3};
  std::chrono::seconds patience{120};  // of any wait for another rank
};

struct TrainingResult {
  // Of the last step, before clipping; undefined: None.
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, at::Tensor> weights;  // of trainable parameters, after the last step
  std::vector<double> norms;                  // per step
  std::vector<float> losses;                  // per sample, all steps
};

inline constexpr uint64_t kTrainingSeed = 42;
inline constexpr int64_t kTrainingSamples = 64;
inline std::unique_ptr<WeightSource> training_weights() { return random_weights(7); }
inline RandomSamples training_samples(const ModelConfig& model, const BlockGraph& graph) {
  return {model, graph.width, graph.height, kTrainingSamples, 3};
}

// Stages of about equal length in block position; the UNet's frozen time embedding is replicated.
inline Placement contiguous_placement(const BlockGraph& graph, int stages) {
  Placement placement;
  const auto count = static_cast<int>(graph.blocks.size());
  for (int b = 0; b < count; ++b) {
    const Block& block = graph.blocks[static_cast<size_t>(b)];
    const bool replicate = block.name == "unet.time_embedding" && block.state == BlockState::kF;
    placement.stage_of_block.push_back(replicate ? -1 : b * stages / count);
    placement.recompute.push_back(false);
  }
  for (int s = 0; s < stages; ++s) placement.rank_of_stage.push_back(s);
  return placement;
}

// The mistakes that need no hook in the programs, at the seams between executor and training loop.
class MistakenLoop {
 public:
  MistakenLoop(RankParameters& parameters, const TrainingRun& run, int rank)
      : parameters_(parameters), run_(run), rank_(rank) {
    if (!made(Mistake::kZeroForNone)) return;
    for (ParameterSlot& slot : parameters.slots()) {
      if (!slot.trainable || slot.trained) continue;
      for (at::Tensor* zeros : {&slot.gradient, &slot.exp_avg, &slot.exp_avg_sq}) {
        *zeros = at::zeros_like(slot.weight);
      }
      slot.steps = at::zeros({}, at::kFloat);
    }
  }

  // Before a step runs.
  void spoil(std::vector<Draw>& draws, RankExecutor& executor) {
    const auto n = static_cast<size_t>(run_.micro_batch);
    const bool last_rank = rank_ + 1 == run_.placement.ranks();
    if (made(Mistake::kSwappedMicroBatches) && last_rank && draws.size() >= 2 * n) {
      std::swap_ranges(draws.begin(), draws.begin() + n, draws.begin() + n);
    }
    if (made(Mistake::kStaleWeights)) {
      std::swap(stale_, fresh_);
      fresh_ = copy_of_weights();
      executor.on_action = [this](const Action& action, int) {
        show(action.micro_batch == 1 && !stale_.empty() ? stale_ : fresh_);
      };
    }
  }

  // Before the optimizer runs.
  void spoil_gradients() {
    if (made(Mistake::kStaleWeights)) show(fresh_);
    if (!made(Mistake::kZeroForNone)) return;
    for (ParameterSlot& slot : parameters_.slots()) slot.has_gradient = slot.trainable;
  }

 private:
  std::vector<at::Tensor> copy_of_weights() const {
    std::vector<at::Tensor> copies;
    for (const ParameterSlot& slot : parameters_.slots()) {
      copies.push_back(slot.weight.detach().clone());
    }
    return copies;
  }
  // Behind autograd's back, as a mistake of this kind would be.
  void show(const std::vector<at::Tensor>& weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      std::memcpy(parameters_.slots()[i].weight.data_ptr(), weights[i].const_data_ptr(),
                  weights[i].nbytes());
    }
  }

  RankParameters& parameters_;
  const TrainingRun& run_;
  const int rank_;
  std::vector<at::Tensor> stale_, fresh_;
};

inline TrainingResult train(const ModelConfig& model, const BlockGraph& graph,
                            const TrainingRun& run) {
  const auto sizes = micro_batch_sizes(run.batch, run.micro_batch);
  const auto order = run.order.empty() ? generate_order(run.schedule, graph, run.placement,
                                                        static_cast<int>(sizes.size()))
                                       : run.order;
  const Schedule schedule = insert_messages(graph, run.placement, order, sizes);
  for (const std::string& fault : placement_faults(graph, run.placement)) ADD_FAILURE() << fault;
  for (const std::string& fault : verify(graph, run.placement, sizes, schedule))
    ADD_FAILURE() << fault;
  const int ranks = run.placement.ranks();
  InProcessWorld world(ranks, run.patience);
  TrainingResult result;
  std::mutex mutex;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  const auto work = [&](int rank) {
    at::set_num_threads(1);
    const auto comm = world.communicator(rank);
    const auto control = world.control(rank);
    try {
      RankParameters parameters(graph, run.placement, rank, *training_weights());
      RandomSamples samples = training_samples(model, graph);
      const ExecutionPlan plan{graph, run.placement, schedule, sizes, model, kTrainingSeed};
      AutogradRunner blocks(graph, parameters);
      RankExecutor executor(plan, rank, blocks, *comm, samples);
      MistakenLoop mistaken(parameters, run, rank);
      SampleOrder stream(kTrainingSeed, kTrainingSamples);
      for (int step = 0; step < run.steps; ++step) {
        auto draws = stream.batch_of_step(run.batch, step);
        mistaken.spoil(draws, executor);
        const StepOutput output = executor.run(RunMode::kTrain, step, draws);
        mistaken.spoil_gradients();
        if (step == run.steps - 1) {
          const std::lock_guard lock(mutex);
          for (const ParameterSlot& slot : parameters.slots()) {
            if (!slot.owned || !slot.trainable) continue;
            result.gradients[slot.param->name] =
                slot.has_gradient ? slot.gradient.clone() : at::Tensor();
          }
        }
        const double norm = global_gradient_norm(parameters, *control, step);
        optimizer_step(parameters, run.optimizer, norm, step);
        const std::lock_guard lock(mutex);
        if (rank == 0) result.norms.push_back(norm);
        for (const float loss : output.sample_losses) result.losses.push_back(loss);
      }
      const std::lock_guard lock(mutex);
      for (const ParameterSlot& slot : parameters.slots()) {
        if (slot.owned && slot.trainable) {
          result.weights[slot.param->name] = slot.weight.detach().clone();
        }
      }
    } catch (const std::exception& error) {
      failures[static_cast<size_t>(rank)] = std::current_exception();
      comm->abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return result;
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) return false;
  return !a.defined() || (a.sizes() == b.sizes() &&
                          std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

inline void expect_same_bits(const std::map<std::string, at::Tensor>& a,
                             const std::map<std::string, at::Tensor>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  int different = 0;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    ASSERT_NE(other, b.end()) << what << " of " << name;
    if (!same_bits(tensor, other->second) && ++different <= 3)
      ADD_FAILURE() << what << " of " << name;
  }
  EXPECT_EQ(different, 0) << what;
}

inline void expect_same_training(const TrainingResult& a, const TrainingResult& b) {
  expect_same_bits(a.gradients, b.gradients, "gradient");
  expect_same_bits(a.weights, b.weights, "weight");
  EXPECT_EQ(a.norms, b.norms);
  EXPECT_EQ(a.losses, b.losses);
}

}  // namespace stagecraft
