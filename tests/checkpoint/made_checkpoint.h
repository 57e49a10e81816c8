// Checkpoints of made-up blocks whose values are functions of (steps, block), so that a test knows
// what every one of them must hold.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "partitioner/base/random.h"
#include "pipeline/checkpoint/block_copy.h"
#include "pipeline/checkpoint/folder.h"
#include "pipeline/checkpoint/part_writer.h"

namespace stagecraft {

inline const std::vector<std::string> kMadeBlocks = {"net.a", "net.b", "net.c"};

struct MadeBlock {
  std::vector<float> weight, moment;
  float steps = 0;
  bool operator==(const MadeBlock&) const = default;
};

inline MadeBlock made_block(int64_t steps, const std::string& name, size_t size = 200) {
  MadeBlock block;
  block.weight.resize(size);
  block.moment.resize(size);
  const auto index = static_cast<uint64_t>(steps);
  fill_normal({.seed = 1, .index = index, .sample = 0, .purpose = name}, block.weight);
  fill_uniform({.seed = 2, .index = index, .sample = 0, .purpose = name}, block.moment);
  block.steps = static_cast<float>(steps);
  return block;
}

template <typename Value, typename Block>
std::vector<StateTensor<Value>> tensors_of(const std::string& name, Block& block) {
  const auto size = static_cast<int64_t>(block.weight.size());
  std::vector<StateTensor<Value>> tensors(3);
  tensors[0] = {.name = name + ".w", .shape = {2, size / 2}, .values = block.weight};
  tensors[1] = {.name = name + ".w.exp_avg", .shape = {2, size / 2}, .values = block.moment};
  tensors[2] = {.name = name + ".w.steps", .shape = {}, .values = {&block.steps, 1}};
  return tensors;
}

// Begins to write the state of all blocks after so many steps.
inline void start_writing(PartWriter& writer, const std::string& root, int64_t steps,
                          size_t size = 200) {
  std::vector<MadeBlock> blocks;
  for (const std::string& name : kMadeBlocks) blocks.push_back(made_block(steps, name, size));
  std::vector<StoredBlock> states(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) {
    states[b].file = block_file_name(kMadeBlocks[b]);
    states[b].tensors = tensors_of<const float>(kMadeBlocks[b], blocks[b]);
  }
  writer.start(root, steps, states);
}

inline CheckpointManifest made_manifest(int64_t steps, std::vector<CheckpointFile> files) {
  CheckpointManifest manifest;
  manifest.steps = steps;
  manifest.same = {{"batch", "4"}, {"model graph", "abc"}};
  manifest.settings = {{"learning rate", "1e-05"}};
  manifest.files = std::move(files);
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return manifest;
}

// Commits a checkpoint and returns its folder.
inline std::string make_checkpoint(const std::string& root, int64_t steps, size_t size = 200) {
  PartWriter writer;
  start_writing(writer, root, steps, size);
  commit_checkpoint(root, made_manifest(steps, writer.wait()));
  return root + "/" + checkpoint_name(steps);
}

// Every byte verified, and every value what it must be.
inline void expect_made_checkpoint(const std::string& folder, int64_t steps, size_t size = 200) {
  const CheckpointManifest manifest = verify_checkpoint(folder);
  EXPECT_EQ(manifest.steps, steps);
  ASSERT_EQ(manifest.files.size(), kMadeBlocks.size());
  for (size_t b = 0; b < kMadeBlocks.size(); ++b) {
    MadeBlock read;
    read.weight.resize(size);
    read.moment.resize(size);
    read_block_file(folder, manifest.files[b], tensors_of<float>(kMadeBlocks[b], read));
    EXPECT_EQ(read, made_block(steps, kMadeBlocks[b], size)) << kMadeBlocks[b];
  }
}

}  // namespace stagecraft
