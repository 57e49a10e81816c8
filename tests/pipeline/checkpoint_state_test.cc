// The trained state of a rank's parameters through the files of a checkpoint.
#include "pipeline/train/checkpoint_state.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "partitioner/base/random.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/checkpoint/part_writer.h"
#include "pipeline/train/resume.h"
#include "tests/support/small_model.h"
#include "tests/support/temp_folder.h"
#include "tests/support/training_world.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

class CheckpointState : public ::testing::TestWithParam<TrainableConfig> {
 protected:
  // A rank as it starts, and with every number of its trained state drawn anew.
  RankParameters fresh(int stages, int rank) const {
    return {graph_, contiguous_placement(graph_, stages), rank, *training_weights()};
  }
  static void draw(RankParameters& parameters) {
    for (ParameterSlot& slot : parameters.slots()) {
      if (!slot.trained) continue;
      const auto key = static_cast<uint64_t>(slot.canonical);
      uint64_t purpose = 0;
      for (at::Tensor* tensor : {&slot.weight, &slot.exp_avg, &slot.exp_avg_sq, &slot.steps}) {
        fill_normal(
            {.seed = 5, .index = purpose++, .sample = key, .purpose = "state"},
            {static_cast<float*>(tensor->data_ptr()), static_cast<size_t>(tensor->numel())});
      }
    }
  }
  static void add_state(const RankParameters& parameters, std::map<std::string, at::Tensor>& all) {
    for (const ParameterSlot& slot : parameters.slots()) {
      if (!slot.owned || !slot.trained) continue;
      const std::string& name = slot.param->name;
      all[name] = slot.weight.detach();
      all[name + " m"] = slot.exp_avg;
      all[name + " v"] = slot.exp_avg_sq;
      all[name + " n"] = slot.steps;
    }
  }
  std::map<std::string, at::Tensor> save_from(int stages) const {
    std::map<std::string, at::Tensor> all;
    CheckpointManifest manifest;
    manifest.steps = 9;
    std::vector<RankParameters> ranks;
    for (int rank = 0; rank < stages; ++rank) {
      RankParameters& parameters = ranks.emplace_back(fresh(stages, rank));
      draw(parameters);
      add_state(parameters, all);
      PartWriter writer;
      writer.start(root_, manifest.steps, trained_state(graph_, parameters));
      const auto files = writer.wait();
      manifest.files.insert(manifest.files.end(), files.begin(), files.end());
    }
    std::sort(manifest.files.begin(), manifest.files.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    commit_checkpoint(root_, manifest);
    return all;
  }
  std::map<std::string, at::Tensor> load_into(int stages) const {
    const std::string folder = root_ + "/" + checkpoint_name(9);
    const CheckpointManifest manifest = verify_checkpoint(folder);
    std::map<std::string, at::Tensor> all;
    for (int rank = 0; rank < stages; ++rank) {
      RankParameters parameters = fresh(stages, rank);
      load_trained_state(graph_, folder, manifest, parameters);
      add_state(parameters, all);
    }
    return all;
  }

  void SetUp() override { prepare_checkpoints(root_); }

  TempFolder folder_;
  const std::string root_ = folder_.file("out/checkpoints");
  const ModelConfig model_ = small_model();
  const BlockGraph graph_ = build_training_graph(model_, 64, 64, GetParam(), "fp32");
};

TEST_P(CheckpointState, DrawnAtRandomReadsBackBitForBitOnOtherStages) {
  const auto saved = save_from(3);
  expect_same_bits(saved, load_into(2), "state");
  expect_same_bits(saved, load_into(1), "state");
  std::vector<std::string> names;
  for (const auto& file : verify_checkpoint(root_ + "/" + checkpoint_name(9)).files) {
    names.push_back(file.name);
  }
  EXPECT_EQ(names, files_of_trained_blocks(graph_));
  int64_t bytes = 0;
  for (const auto& [name, tensor] : saved) bytes += static_cast<int64_t>(tensor.nbytes());
  EXPECT_EQ(bytes_of_trained_state(graph_).count, bytes);
}

INSTANTIATE_TEST_SUITE_P(WhatTrains, CheckpointState,
                         ::testing::Values(TrainableConfig{}, TrainableConfig{.sd_locked = false},
                                           TrainableConfig{.only_mid_control = true},
                                           TrainableConfig{.what = "unet"}));

// Saves one by one with the rule of remove_old_checkpoints.
int64_t new_checkpoints_at_once(const TrainOptions& options, int64_t from,
                                const std::vector<int64_t>& on_disk) {
  std::vector<int64_t> there(on_disk.rbegin(), on_disk.rend());
  size_t most = there.size();
  for (int64_t step = from + 1; step <= options.steps; ++step) {
    if (step != options.steps && (options.save_every == 0 || step % options.save_every != 0))
      continue;
    there.push_back(step);
    most = std::max(most, there.size());
    for (int64_t i = std::ssize(there) - options.keep_last - 1; i >= 0; --i)
      if (options.keep_every == 0 || there[i] % options.keep_every != 0)
        there.erase(there.begin() + i);
  }
  return static_cast<int64_t>(most - on_disk.size());
}

TEST(CheckpointSpace, IsWhatTheRuleOfKeepingNeeds) {
  const std::vector<std::vector<int64_t>> on_disk = {{}, {5}, {4}, {5, 4, 2}, {6, 5, 4, 3, 2, 1}};
  int checked = 0;
  for (const int64_t steps : {1, 6, 7, 40})
    for (const int64_t save_every : {0, 1, 2, 3, 9})
      for (const int64_t keep_last : {1, 2, 5, 60})
        for (const int64_t keep_every : {0, 1, 2, 4, 6, 100})
          for (const int64_t from : {0, 5, 6})
            for (const std::vector<int64_t>& old : on_disk) {
              if (from > steps || (!old.empty() && old.front() > from)) continue;
              TrainOptions options;
              options.steps = steps;
              options.save_every = save_every;
              options.keep_last = keep_last;
              options.keep_every = keep_every;
              EXPECT_EQ(most_new_checkpoints(options, from, old),
                        new_checkpoints_at_once(options, from, old))
                  << fmt::format("{} steps from {}, saved every {}, kept {} and every {}, {} there",
                                 steps, from, save_every, keep_last, keep_every, old.size());
              ++checked;
            }
  EXPECT_GT(checked, 2000);
}

TEST(CheckpointCopy, IsWhatWasThereWhenTheSaveBegan) {
  const TempFolder folder;
  const ModelConfig model = small_model();
  const BlockGraph graph = build_training_graph(model, 64, 64, TrainableConfig{}, "fp32");
  RankParameters parameters(graph, contiguous_placement(graph, 1), 0, *training_weights());
  std::map<std::string, at::Tensor> began, found;
  PartWriter writer;
  for (const int64_t steps : {1, 2}) {  // the second save uses the memory of the first
    for (const ParameterSlot& slot : parameters.slots()) {
      if (slot.trained) began[slot.param->name] = slot.weight.detach().clone();
    }
    writer.start(folder.file(""), steps, trained_state(graph, parameters));
    {
      at::NoGradGuard no_grad;
      for (ParameterSlot& slot : parameters.slots()) slot.weight.add_(1);
    }
    CheckpointManifest manifest;
    manifest.files = writer.wait();
    load_trained_state(graph, folder.file(partial_checkpoint_name(steps)), manifest, parameters);
    for (const ParameterSlot& slot : parameters.slots()) {
      if (slot.trained) found[slot.param->name] = slot.weight.detach();
    }
    expect_same_bits(began, found, "weight");
    at::NoGradGuard no_grad;
    for (ParameterSlot& slot : parameters.slots()) slot.weight.mul_(2);
  }
}

}  // namespace
}  // namespace stagecraft
