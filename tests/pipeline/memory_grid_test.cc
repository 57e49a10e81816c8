// What ranks hold against what the memory model says, line by line, over sizes, pipelines,
// recompute and trainable parts: each rank a process, its allocator the judge.
//
// The whole grid is slow and prints its tables (docs/memory-model.md quotes them); a part of it
// runs with the other tests. Slack, an allowance of the plan, is left out: tensors are counted to
// the byte.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "models/config/model_config.h"
#include "partitioner/baselines/baselines.h"
#include "partitioner/cost/analytic.h"
#include "partitioner/schedule/verifier.h"
#include "partitioner/simulate/memory_model.h"
#include "tests/support/model_error.h"
#include "tests/support/plain_cpu.h"
#include "tests/support/process_world.h"
#include "tests/support/trainable_choices.h"

namespace stagecraft {
namespace {

struct GridSize {
  const char* name;
  ModelConfig model;
  int64_t width, height, micro_batch;
};

enum class Recomputed { kNone, kAll, kChosen };
constexpr const char* kRecomputedNames[] = {"none", "all", "chosen"};

struct Cell {
  int choice = 0, stages = 1, micro_batches = 1;
  Recomputed recomputed = Recomputed::kNone;
  const char* schedule = "1f1b";
  bool relays = false;
};

// Blocks that keep more than the mean: what a planner short of memory would run again.
std::vector<bool> blocks_to_recompute(const BlockGraph& graph, const CostTable& costs,
                                      Recomputed recomputed) {
  std::vector<bool> chosen;
  int64_t sum = 0, count = 0;
  for (const Block& block : graph.blocks) {
    if (!block.reaches_loss || block.state == BlockState::kF) continue;
    sum += costs.blocks.at(block.name).saved_internal.count;
    ++count;
  }
  for (const Block& block : graph.blocks) {
    const bool can = block.reaches_loss && block.state != BlockState::kF;
    chosen.push_back(can && recomputed != Recomputed::kNone &&
                     (recomputed == Recomputed::kAll ||
                      costs.blocks.at(block.name).saved_internal.count * count > sum));
  }
  return chosen;
}

// The least largest stage in block order; a frozen time embedding runs on every stage.
Placement place(const BlockGraph& graph, const CostTable& costs, const Cell& cell) {
  Placement placement = block_order_baselines(graph, costs, cell.stages).back().placement;
  const int embedding = graph.find_block("unet.time_embedding");
  if (graph.blocks[static_cast<size_t>(embedding)].state == BlockState::kF) {
    placement.stage_of_block[static_cast<size_t>(embedding)] = -1;
  }
  placement.recompute = blocks_to_recompute(graph, costs, cell.recomputed);
  placement.relays = cell.relays;
  return placement;
}

// Lines of less than this share of a rank's memory are no part of the tables.
constexpr double kLeastShare = 0.01;

class Grid {
 public:
  explicit Grid(GridSize size) : size_(std::move(size)) {
    const Device device = testing::plain_cpu();
    TrainConfig train;
    train.micro_batch = size_.micro_batch;
    for (const TrainableChoice& choice : kTrainableChoices) {
      BlockGraph graph = training_graph(size_.model, size_.width, size_.height, choice);
      counted_.push_back(analytic_cost_table(graph, device, "fp32", size_.micro_batch));
      profiled_.push_back(
          profile_in_process(graph, train, {.warm_up = 0, .repetitions = 1, .on_progress = {}}));
      graphs_.push_back(std::move(graph));
    }
  }

  void run(const Cell& cell) {
    const auto c = static_cast<size_t>(cell.choice);
    const BlockGraph& graph = graphs_[c];
    const Placement placement = place(graph, counted_[c], cell);
    const std::vector<int64_t> sizes(static_cast<size_t>(cell.micro_batches), size_.micro_batch);
    const Schedule schedule = make_schedule(cell.schedule, graph, placement, sizes);
    ASSERT_TRUE(verify(graph, placement, sizes, schedule).empty());
    const auto measured = train_in_processes({.model = size_.model,
                                              .graph = graph,
                                              .placement = placement,
                                              .schedule = schedule,
                                              .micro_batch_sizes = sizes});
    const std::vector<Device> devices(static_cast<size_t>(cell.stages));
    const auto compare = [&](const CostTable& costs, ModelErrors& errors) {
      const auto predicted =
          predict_memory(graph, placement, ClusterCosts(costs), devices, schedule, sizes);
      for (size_t r = 0; r < measured.size(); ++r) {
        add(predicted[r], measured[r].memory, fmt::format("{} rank {}", to_string(cell), r),
            errors);
      }
    };
    compare(counted_[c], counted_errors_);
    compare(profiled_[c], profiled_errors_);
  }

  void report() const {
    counted_errors_.print(fmt::format("{}, costs from shapes", size_.name));
    profiled_errors_.print(fmt::format("{}, costs measured", size_.name));
    counted_errors_.expect_within({});
    profiled_errors_.expect_within({.median = 0.005, .worst = 0.02, .under = 0.005});
  }

 private:
  static std::string to_string(const Cell& cell) {
    return fmt::format("{}, p = {}, m = {}, {} recomputed, {}",
                       kTrainableChoices[static_cast<size_t>(cell.choice)].name, cell.stages,
                       cell.micro_batches, kRecomputedNames[static_cast<int>(cell.recomputed)],
                       cell.schedule);
  }

  static void add(const RankMemory& predicted, const RankMemory& measured, const std::string& where,
                  ModelErrors& errors) {
    const double total = measured.total().mib();
    errors.add("total", predicted.total().mib(), total, where);
    for (int i = 0; i < kMemoryLines; ++i) {
      const auto line = static_cast<MemoryLine>(i);
      const double seen = measured[line].mib(), said = predicted[line].mib();
      if (std::max(seen, said) < kLeastShare * total) continue;
      errors.add(std::string(stagecraft::to_string(line)), said, seen, where);
    }
  }

  GridSize size_;
  std::vector<BlockGraph> graphs_;             // by trainable choice
  std::vector<CostTable> counted_, profiled_;  // likewise
  ModelErrors counted_errors_, profiled_errors_;
};

void run_whole_grid(GridSize size) {
  Grid grid(std::move(size));
  for (int choice = 0; choice < static_cast<int>(kTrainableChoices.size()); ++choice) {
    for (const int stages : {1, 2, 3, 4}) {
      for (const int micro_batches : {1, 2, 4, 8}) {
        for (const auto recomputed : {Recomputed::kNone, Recomputed::kAll, Recomputed::kChosen}) {
          grid.run({.choice = choice,
                    .stages = stages,
                    .micro_batches = micro_batches,
                    .recomputed = recomputed});
        }
      }
    }
  }
  grid.report();
}

GridSize tiny() {
  return {
      .name = "tiny",
      .model = read_model_config(STAGECRAFT_SOURCE_DIR "/configs/models/sd15_controlnet_tiny.yaml"),
      .width = 128,
      .height = 192,
      .micro_batch = 2};
}

TEST(MemoryGridSlow, TinyModelIsPredicted) { run_whole_grid(tiny()); }

TEST(MemoryGridSlow, MiddleModelIsPredicted) {
  run_whole_grid({.name = "middle",
                  .model = read_model_config(STAGECRAFT_SOURCE_DIR "/benchmarks/middle_model.yaml"),
                  .width = 256,
                  .height = 256,
                  .micro_batch = 1});
}

// Every choice, number of ranks, way to recompute and schedule at least twice.
TEST(MemoryGridLarge, APartOfTheGridIsPredicted) {
  Grid grid(tiny());
  grid.run({0, 1, 2, Recomputed::kNone, "1f1b"});
  grid.run({0, 2, 4, Recomputed::kAll, "gpipe"});
  grid.run({1, 3, 1, Recomputed::kChosen, "1f1b"});
  grid.run({1, 4, 8, Recomputed::kNone, "gpipe"});
  grid.run({2, 2, 1, Recomputed::kChosen, "1f1b"});
  grid.run({2, 4, 2, Recomputed::kAll, "1f1b"});
  grid.run({3, 3, 4, Recomputed::kNone, "gpipe"});
  grid.run({3, 1, 8, Recomputed::kAll, "1f1b"});
  grid.run({0, 4, 4, Recomputed::kNone, "1f1b", true});
  grid.run({2, 4, 2, Recomputed::kChosen, "gpipe", true});
  grid.run({3, 4, 1, Recomputed::kNone, "1f1b"});  // a value in two messages at once
  grid.report();
}

// Rank 1 is fullest between two blocks, when it has posted a receive.
TEST(MemoryGridLarge, APeakOutsideOfBlocksIsPredicted) {
  Grid grid(tiny());
  grid.run({0, 3, 4, Recomputed::kNone, "1f1b"});
  grid.report();
}

}  // namespace
}  // namespace stagecraft
