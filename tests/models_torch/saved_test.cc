// What a block really keeps for its backward pass against what graph/saved.cc says, block by block
// in every state.
//
// A counting allocator sees each tensor of this program. A block's inputs are given up after its
// run, so what stays allocated, less the output, is what autograd keeps.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "models/torch/runner.h"
#include "tests/support/trainable_choices.h"

namespace stagecraft {
namespace {

class CountingAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    void* data = bytes == 0 ? nullptr : aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (bytes != 0 && data == nullptr) throw std::bad_alloc();
    if (data != nullptr) {
      const std::lock_guard lock(mutex_);
      sizes_[data] = static_cast<int64_t>(bytes);
      live_ += static_cast<int64_t>(bytes);
      peak_ = std::max(peak_, live_);
    }
    return {data, data, &CountingAllocator::release, at::Device(at::DeviceType::CPU)};
  }
  at::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::release; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
  int64_t live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }

  // Highest number of live bytes since the last `restart_peak`.
  int64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }
  void restart_peak() {
    const std::lock_guard lock(mutex_);
    peak_ = live_;
  }

 private:
  static void release(void* data);

  std::mutex mutex_;
  std::unordered_map<void*, int64_t> sizes_;
  int64_t live_ = 0, peak_ = 0;
};

// Never destroyed: tensors in static storage outlive any order of destruction.
CountingAllocator& allocator() {
  static auto* instance = new CountingAllocator;
  return *instance;
}

void CountingAllocator::release(void* data) {
  if (data == nullptr) return;
  CountingAllocator& self = allocator();
  {
    const std::lock_guard lock(self.mutex_);
    const auto found = self.sizes_.find(data);
    self.live_ -= found->second;
    self.sizes_.erase(found);
  }
  free(data);
}

const bool installed = [] {
  c10::SetCPUAllocator(&allocator(), /*priority=*/100);
  return true;
}();

int64_t bytes_of(const LocalTensor& t, int64_t batch) {
  return batch * t.elements() * size_of(t.dtype);
}

// A tensor that nothing but its consumers holds: not a leaf when it carries a gradient, since
// accumulators hold leaves.
struct Source {
  at::Tensor leaf;
  Source(const Value& value, int64_t batch) {
    std::vector<int64_t> shape = {batch};
    shape.insert(shape.end(), value.shape.begin(), value.shape.end());
    leaf = value.dtype == DType::kI64 ? at::zeros(shape, at::kLong) : at::randn(shape);
    leaf.set_requires_grad(value.carries_grad);
  }
  at::Tensor make() const { return leaf.requires_grad() ? leaf + 0.0 : leaf.clone(); }
};

struct Kept {
  int64_t measured = 0, predicted = 0;
  size_t tensors = 0;
};

Kept kept_by(const BlockGraph& graph, const Block& block, int64_t batch) {
  std::vector<at::Tensor> params, inputs;
  for (const Param& p : block.params) {
    params.push_back(at::randn(p.shape).set_requires_grad(block.trainable));
  }
  std::vector<Source> sources;
  std::vector<bool> carries_grad;
  for (const int value : block.inputs) {
    sources.emplace_back(graph.values[value], batch);
    carries_grad.push_back(graph.values[value].carries_grad);
  }
  const SavedTensors saved = saved_for_backward(block, carries_grad);
  const int output = block.ops.back().output;
  Kept kept{.measured = 0,
            .predicted = batch * saved.extra_bytes,
            .tensors = saved.tensors.size() + 2 * block.ops.size()};
  for (const int t : saved.tensors) {
    if (t != output) kept.predicted += bytes_of(block.tensors[t], batch);
  }

  const int64_t before = allocator().live();
  for (const Source& source : sources) inputs.push_back(source.make());
  const at::Tensor result = run_block(block, inputs, params);
  inputs.clear();
  kept.measured = allocator().live() - before - static_cast<int64_t>(result.nbytes());
  return kept;
}

struct Subject {
  const char* model_file;
  int64_t width, height, batch;
};
constexpr Subject kTiny{
    .model_file = "sd15_controlnet_tiny.yaml", .width = 128, .height = 192, .batch = 2};
constexpr Subject kReal{
    .model_file = "sd15_controlnet.yaml", .width = 512, .height = 512, .batch = 1};

BlockGraph graph_of(const Subject& subject, const TrainableConfig& trainable) {
  const ModelConfig model =
      read_model_config(std::string(STAGECRAFT_SOURCE_DIR "/configs/models/") + subject.model_file);
  return build_training_graph(model, subject.width, subject.height, trainable);
}

void expect_rules_hold(const Subject& subject, const TrainableConfig& trainable) {
  at::set_num_threads(1);
  const BlockGraph graph = graph_of(subject, trainable);
  for (const Block& block : graph.blocks) {
    if (!block.reaches_loss) continue;
    const Kept kept = kept_by(graph, block, subject.batch);
    EXPECT_NEAR(static_cast<double>(kept.measured), static_cast<double>(kept.predicted),
                64.0 * static_cast<double>(kept.tensors))
        << block.name << " in state " << to_string(block.state);
  }
}

class SavedForBackward : public ::testing::TestWithParam<TrainableChoice> {};
class SavedForBackwardSlow : public SavedForBackward {};

TEST_P(SavedForBackward, RulesHoldInEveryBlock) { expect_rules_hold(kTiny, GetParam().config); }
TEST_P(SavedForBackwardSlow, RulesHoldInEveryBlock) { expect_rules_hold(kReal, GetParam().config); }

const auto kNameOfChoice = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Tiny, SavedForBackward, ::testing::ValuesIn(kTrainableChoices),
                         kNameOfChoice);
INSTANTIATE_TEST_SUITE_P(Real, SavedForBackwardSlow, ::testing::ValuesIn(kTrainableChoices),
                         kNameOfChoice);

TEST(SavedTensors, AreNoneWithoutGradMode) {
  const at::NoGradGuard no_grad;
  const BlockGraph graph = graph_of(kTiny, {});
  for (const Block& block : graph.blocks) {
    if (!block.reaches_loss) continue;
    EXPECT_EQ(kept_by(graph, block, kTiny.batch).measured, 0) << block.name;
  }
}

constexpr int64_t kElements = 1 << 18;

Op silu(int input, int output) {
  Op op;
  op.kind = OpKind::kSilu;
  op.inputs = {input};
  op.output = output;
  return op;
}

TEST(LocalTensors, AreFreedBehindTheirLastUse) {
  const at::NoGradGuard no_grad;
  Block block;
  block.inputs = {0};
  block.tensors.resize(9);
  for (LocalTensor& t : block.tensors) t.shape = {kElements};
  for (int i = 0; i < 8; ++i) block.ops.push_back(silu(i, i + 1));
  const at::Tensor x = at::ones({1, kElements});
  allocator().restart_peak();
  const int64_t before = allocator().live();
  run_block(block, std::vector{x}, {});
  EXPECT_LE(allocator().peak() - before, 2 * static_cast<int64_t>(x.nbytes()));
}

TEST(LocalTensors, ChainFreesValuesBehindTheirLastConsumer) {
  BlockGraph graph;
  graph.values.resize(9);
  for (int i = 0; i < 8; ++i) {
    Block block;
    block.inputs = {i};
    block.output = i + 1;
    block.tensors.resize(2);
    for (LocalTensor& t : block.tensors) t.shape = {kElements};
    block.ops = {silu(0, 1)};
    graph.blocks.push_back(block);
    graph.values[i + 1].producer = i;
  }
  graph.output = 8;
  const at::Tensor x = at::ones({1, kElements});
  allocator().restart_peak();
  const int64_t before = allocator().live();
  run_chain(graph, x, std::vector<std::vector<at::Tensor>>(8));
  EXPECT_LE(allocator().peak() - before, 2 * static_cast<int64_t>(x.nbytes()));
}

}  // namespace
}  // namespace stagecraft
