// The executor against diffusers, live: weights and draws go to Python as files, its gradients come
// back. On the tiny model, and at SD 1.5's real size (Slow: minutes, about 13 GiB).
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/safetensors.h"
#include "models/weights/save_folder.h"
#include "tests/support/diffusers_parity.h"
#include "tests/support/drawn_inputs.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"
#include "tests/support/training_world.h"

namespace stagecraft {
namespace {

constexpr const char* kModelFiles = STAGECRAFT_SOURCE_DIR "/configs/models/";

DType dtype_of(const at::Tensor& t) {
  return t.scalar_type() == at::kLong ? DType::kI64 : DType::kF32;
}

void write_tensors(const std::string& path, const TensorMap& tensors) {
  std::vector<TensorInfo> table;
  for (const auto& [name, t] : tensors) table.push_back({name, dtype_of(t), t.sizes().vec()});
  SafetensorsWriter writer(path, table);
  for (const auto& [name, t] : tensors) {
    writer.write(name, {static_cast<const std::byte*>(t.const_data_ptr()), t.nbytes()});
  }
  writer.finish();
}

void write_weights(const std::string& folder, const ModelConfig& model, const BlockGraph& graph,
                   const std::string& part) {
  std::vector<Param> params;
  for (const Block& block : graph.blocks) {
    if (block.part == part) params.insert(params.end(), block.params.begin(), block.params.end());
  }
  FolderWriter writer({.folder = folder + "/" + part, .part = part}, model, params);
  std::vector<float> values;
  for (const Param& param : params) {
    values.resize(static_cast<size_t>(param.elements()));
    training_weights()->read(param, values);
    writer.write(param, values);
  }
  writer.finish();
}

struct Comparison {
  std::string model_file;
  int64_t width, height;
  int stages;
  std::vector<TrainableChoice> choices;
};

class ExecutorAgainstDiffusers {
 public:
  explicit ExecutorAgainstDiffusers(const Comparison& comparison)
      : with_(comparison), model_(read_model_config(kModelFiles + comparison.model_file)) {}

  void run() {
    std::map<std::string, TensorMap> ours;
    std::vector<std::string> arguments = {folder_.path(), std::to_string(kMicroBatch)};
    for (const TrainableChoice& choice : with_.choices) {
      ours[choice.name] = gradients(choice);
      arguments.push_back(choice.name);
    }
    const BlockGraph graph = graph_of(kTrainableChoices[0]);
    for (const char* part : {"unet", "controlnet"}) {
      write_weights(folder_.path(), model_, graph, part);
    }
    write_tensors(folder_.file("inputs.safetensors"), drawn_inputs(model_, graph, draws()));
    must_run(python_command("tests/python/diffusers_gradients.py", arguments));
    for (const TrainableChoice& choice : with_.choices) {
      SCOPED_TRACE(choice.name);
      const TensorMap theirs =
          read_tensors(folder_.file(std::string(choice.name) + ".safetensors"));
      compare_gradients(choice, ours.at(choice.name), theirs);
      compare_forward(choice, theirs);
    }
  }

 private:
  static constexpr int64_t kBatch = 3, kMicroBatch = 2;

  static std::vector<Draw> draws() {
    return SampleOrder(kTrainingSeed, kTrainingSamples).batch_of_step(kBatch, 0);
  }

  BlockGraph graph_of(const TrainableChoice& choice) const {
    return training_graph(model_, with_.width, with_.height, choice);
  }

  // Before the optimizer, of both micro-batches.
  TensorMap gradients(const TrainableChoice& choice) const {
    const BlockGraph graph = graph_of(choice);
    TrainingRun run{.placement = contiguous_placement(graph, with_.stages), .order = {}};
    run.batch = kBatch;
    run.micro_batch = kMicroBatch;
    run.patience = std::chrono::hours(1);
    TensorMap gradients = train(model_, graph, run).gradients;
    std::erase_if(gradients, [](const auto& entry) { return !entry.second.defined(); });
    return gradients;
  }

  void compare_gradients(const TrainableChoice& choice, const TensorMap& ours,
                         const TensorMap& all) const {
    TensorMap theirs;
    const std::string prefix = "gradient.";
    for (const auto& [name, tensor] : all) {
      if (name.starts_with(prefix)) theirs[name.substr(prefix.size())] = tensor;
    }
    const double worst = expect_close_gradients(ours, theirs, kGradientBound);
    fmt::print("{}: {} gradients, largest distance {:.2e}\n", choice.name, ours.size(), worst);
  }

  // Prediction and residuals of the first micro-batch.
  void compare_forward(const TrainableChoice& choice, const TensorMap& theirs) const {
    const at::NoGradGuard no_grad;
    const BlockGraph graph = graph_of(choice);
    const BlockTensors params = read_weights(graph, *training_weights());
    const std::vector<Draw> batch = draws();
    const WholeGraph whole(graph, params,
                           drawn_inputs(model_, graph, std::span(batch).first(kMicroBatch)));
    const double prediction = distance(whole.prediction(), theirs.at("prediction"));
    EXPECT_LE(prediction, kOutputTolerance);
    double worst = 0;
    for (int i = 0; theirs.contains(fmt::format("residual.{}", i)); ++i) {
      const std::string block = i < 12 ? fmt::format("controlnet.controlnet_down_blocks.{}", i)
                                       : "controlnet.controlnet_mid_block";
      if (!graph.blocks[static_cast<size_t>(graph.find_block(block))].reaches_loss) continue;
      const double apart = distance(whole.value(block), theirs.at(fmt::format("residual.{}", i)));
      EXPECT_LE(apart, kOutputTolerance) << "residual " << i;
      worst = std::max(worst, apart);
    }
    fmt::print("{}: prediction {:.2e}, residuals {:.2e}\n", choice.name, prediction, worst);
  }

  Comparison with_;
  ModelConfig model_;
  TempFolder folder_;
};

TEST(ExecutorParityLarge, GradientsOfUnevenMicroBatchesOverThreeRanksEqualDiffusers) {
  at::set_num_threads(1);
  ExecutorAgainstDiffusers({.model_file = "sd15_controlnet_tiny.yaml",
                            .width = kTinyWidth,
                            .height = kTinyHeight,
                            .stages = 3,
                            .choices = {kTrainableChoices.begin(), kTrainableChoices.end()}})
      .run();
}

TEST(ExecutorParitySlow, RealControlNetAt256PixelsEqualsDiffusers) {
  at::set_num_threads(1);
  ExecutorAgainstDiffusers({.model_file = "sd15_controlnet.yaml",
                            .width = 256,
                            .height = 256,
                            .stages = 2,
                            .choices = {kTrainableChoices[0]}})
      .run();
}

}  // namespace
}  // namespace stagecraft
