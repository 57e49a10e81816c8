// Every block of a model in each state in which it occurs, run once by the profiler, against what
// is counted from its operations: what it keeps for its backward pass, and its scratch.
//
// Prints the largest differences. Blocks of equal shape count once.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/config/model_config.h"
#include "partitioner/cost/analytic.h"
#include "tests/support/model_error.h"
#include "tests/support/plain_cpu.h"
#include "tests/support/process_world.h"
#include "tests/support/trainable_choices.h"

namespace stagecraft {
namespace {

struct BlockSubject {
  const char* model_file;
  int64_t width, height, micro_batch;
};

struct Figure {
  std::string what;
  Bytes counted, measured;
  Bytes difference() const { return counted - measured; }
};

class BlockFigures {
 public:
  void compare(const BlockSubject& subject, const TrainableChoice& choice) {
    const ModelConfig model = read_model_config(
        std::string(STAGECRAFT_SOURCE_DIR "/configs/models/") + subject.model_file);
    const BlockGraph graph = training_graph(model, subject.width, subject.height, choice);
    const Device device = testing::plain_cpu();
    TrainConfig train;
    train.micro_batch = subject.micro_batch;
    const CostTable counted = analytic_cost_table(graph, device, "fp32", subject.micro_batch);
    const CostTable measured =
        profile_in_process(graph, train, {.warm_up = 0, .repetitions = 1, .on_progress = {}});
    for (const Block& block : graph.blocks) {
      if (!block.reaches_loss) continue;
      add(block, counted.blocks.at(block.name), measured.blocks.at(block.name));
    }
  }

  // Bytes that are kept are equal to the byte; scratch that matters is within the limits.
  void report() {
    std::sort(scratch_.begin(), scratch_.end(), [](const Figure& a, const Figure& b) {
      return std::abs(a.difference().count) > std::abs(b.difference().count);
    });
    fmt::print("{} blocks; largest differences:\n", seen_.size());
    fmt::print("| scratch | counted, MiB | measured, MiB | difference, KiB |\n|---|---|---|---|\n");
    for (size_t i = 0; i < std::min<size_t>(10, scratch_.size()); ++i) {
      const Figure& figure = scratch_[i];
      fmt::print("| {} | {:.3f} | {:.3f} | {:+.1f} |\n", figure.what, figure.counted.mib(),
                 figure.measured.mib(), figure.difference().mib() * 1024);
    }
    errors_.print("blocks");
    errors_.expect_within({});
  }

 private:
  void add(const Block& block, const BlockCost& counted, const BlockCost& measured) {
    const std::vector<int64_t> figures = {
        counted.saved_internal.count,     measured.saved_internal.count,
        counted.workspace_forward.count,  measured.workspace_forward.count,
        counted.workspace_backward.count, measured.workspace_backward.count};
    if (!seen_.insert(figures).second) return;
    const std::string name = fmt::format("{} {}", block.name, to_string(block.state));
    EXPECT_EQ(counted.saved_internal, measured.saved_internal) << name;
    add_scratch(name + ", forward", counted.workspace_forward, measured.workspace_forward);
    add_scratch(name + ", backward", counted.workspace_backward, measured.workspace_backward);
  }

  void add_scratch(const std::string& what, Bytes counted, Bytes measured) {
    constexpr Bytes kMatters{1 << 20};
    scratch_.push_back({.what = what, .counted = counted, .measured = measured});
    if (measured >= kMatters) errors_.add("scratch", counted.mib(), measured.mib(), what);
  }

  std::set<std::vector<int64_t>> seen_;
  std::vector<Figure> scratch_;
  ModelErrors errors_;
};

void expect_blocks_as_counted(const BlockSubject& subject) {
  BlockFigures figures;
  for (const TrainableChoice& choice : kTrainableChoices) figures.compare(subject, choice);
  figures.report();
}

TEST(BlockMemorySlow, RealBlocksHoldWhatIsCounted) {
  expect_blocks_as_counted(
      {.model_file = "sd15_controlnet.yaml", .width = 512, .height = 512, .micro_batch = 1});
}

TEST(BlockMemoryLarge, TinyBlocksHoldWhatIsCounted) {
  for (const int64_t micro_batch : {1, 2}) {
    expect_blocks_as_counted({.model_file = "sd15_controlnet_tiny.yaml",
                              .width = 128,
                              .height = 192,
                              .micro_batch = micro_batch});
  }
}

}  // namespace
}  // namespace stagecraft
