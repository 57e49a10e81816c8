// Trains a graph in this process, ranks as threads over the strict in-process communicator, on
// random samples: what the bitwise tests compare.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <exception>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "models/network/build.h"
#include "models/weights/weight_source.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/verifier.h"
#include "pipeline/comm/in_process.h"
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
};

struct TrainingResult {
  // Of the last step, before clipping; undefined: None.
  std::map<std::string, at::Tensor> gradients;
  std::map<std::string, at::Tensor> weights;  // of trainable parameters, after the last step
  std::vector<double> norms;                  // per step
  std::vector<float> losses;                  // per sample, all steps
};

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
  InProcessWorld world(ranks, std::chrono::seconds(120));
  TrainingResult result;
  std::mutex mutex;
  std::vector<std::exception_ptr> failures(static_cast<size_t>(ranks));
  const auto work = [&](int rank) {
    at::set_num_threads(1);
    const auto comm = world.communicator(rank);
    const auto control = world.control(rank);
    try {
      RankParameters parameters(graph, run.placement, rank, *random_weights(7));
      RandomSamples samples(model, graph.width, graph.height, 64, 3);
      const ExecutionPlan plan{graph, run.placement, schedule, sizes, model, 42};
      RankExecutor executor(plan, rank, parameters, *comm, samples);
      SampleOrder stream(42, 64);
      for (int step = 0; step < run.steps; ++step) {
        const auto draws = stream.batch_of_step(run.batch, step);
        const StepOutput output = executor.run(RunMode::kTrain, step, draws);
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

}  // namespace stagecraft
