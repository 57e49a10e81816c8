#include "partitioner/graph/placement.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

constexpr int kReplicated = -1;

// By block and stage: runs it; its own stage, or for a replicated one those that need its output.
class Runs {
 public:
  Runs(size_t blocks, int stages)
      : stages_(static_cast<size_t>(stages)), bits_(blocks * stages_, false) {}
  auto operator()(size_t block, int stage) { return bits_[block * stages_ + stage]; }
  bool operator()(size_t block, int stage) const { return bits_[block * stages_ + stage]; }

 private:
  size_t stages_;
  std::vector<bool> bits_;
};

Runs runs_on(const BlockGraph& graph, const Placement& placement) {
  const int stages = placement.stages();
  Runs runs(graph.blocks.size(), stages);
  for (int b = static_cast<int>(graph.blocks.size()) - 1; b >= 0; --b) {
    const Block& block = graph.blocks[b];
    if (!block.reaches_loss) continue;
    const int stage = placement.stage_of_block[b];
    if (stage != kReplicated) {
      runs(b, stage) = true;
      continue;
    }
    for (int consumer : graph.values[block.output].consumers)
      for (int s = 0; s < stages; ++s)
        if (runs(consumer, s)) runs(b, s) = true;
    // Replicating the block that makes the prediction: the last stage needs it for the loss.
    if (block.output == graph.output && stages > 0) runs(b, stages - 1) = true;
  }
  return runs;
}

void check_sizes(const BlockGraph& graph, const Placement& placement, int stage) {
  check(placement.stage_of_block.size() == graph.blocks.size(),
        "placement: not one stage for each block");
  check(stage >= 0 && stage < placement.stages(), "placement: stage out of range");
}

// Faults that make the other checks meaningless.
std::vector<std::string> shape_faults(const BlockGraph& graph, const Placement& placement) {
  std::vector<std::string> faults;
  const size_t blocks = graph.blocks.size();
  if (placement.stage_of_block.size() != blocks)
    faults.push_back(fmt::format("{} blocks are placed, the graph has {}",
                                 placement.stage_of_block.size(), blocks));
  if (placement.recompute.size() != blocks)
    faults.push_back(fmt::format("recompute is given for {} blocks, the graph has {}",
                                 placement.recompute.size(), blocks));
  if (placement.stages() == 0) faults.emplace_back("there is no stage");
  if (!faults.empty()) return faults;
  for (size_t b = 0; b < blocks; ++b) {
    const int stage = placement.stage_of_block[b];
    if (stage < kReplicated || stage >= placement.stages())
      faults.push_back(fmt::format("{} is on stage {}; stages are 0 to {}", graph.blocks[b].name,
                                   stage, placement.stages() - 1));
  }
  return faults;
}

void rank_faults(const Placement& placement, std::vector<std::string>& faults) {
  const int stages = placement.stages();
  std::vector<bool> used(stages, false);
  int last = 0;
  for (int s = 0; s < stages; ++s) {
    const int rank = placement.rank_of_stage[s];
    if (rank < 0 || rank >= stages) {
      faults.push_back(fmt::format("stage {} is on rank {}; {} stages can use ranks 0 to {}", s,
                                   rank, stages, stages - 1));
      continue;
    }
    used[rank] = true;
    last = std::max(last, rank);
  }
  const auto ranks = std::ranges::count(used, true);
  if (placement.relays && ranks < stages)
    faults.push_back(
        fmt::format("transfers are relayed, but {} stages share {}: give each stage a rank of "
                    "its own, or say `transfers: direct`",
                    stages, counted(ranks, "rank")));
  for (int r = 0; r < last; ++r)
    if (!used[r]) faults.push_back(fmt::format("rank {} hosts no stage, rank {} does", r, last));
}

void replication_faults(const BlockGraph& graph, const Placement& placement,
                        std::vector<std::string>& faults) {
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const Block& block = graph.blocks[b];
    if (placement.stage_of_block[b] != kReplicated) continue;
    if (block.trainable || block.state != BlockState::kF)
      faults.push_back(fmt::format(
          "{} is replicated but in state {}{}; only frozen blocks without gradients can be",
          block.name, to_string(block.state), block.trainable ? " and trainable" : ""));
    for (int input : block.inputs) {
      const int producer = graph.values[input].producer;
      if (producer >= 0 && placement.stage_of_block[producer] != kReplicated)
        faults.push_back(fmt::format(
            "{} is replicated but reads {} from stage {}; it may read local inputs only",
            block.name, graph.blocks[producer].name, placement.stage_of_block[producer]));
    }
  }
}

void edge_faults(const BlockGraph& graph, const Placement& placement,
                 std::vector<std::string>& faults) {
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const int stage = placement.stage_of_block[b];
    if (stage == kReplicated || !graph.blocks[b].reaches_loss) continue;
    for (int input : graph.blocks[b].inputs) {
      const int producer = graph.values[input].producer;
      if (producer >= 0 && placement.stage_of_block[producer] > stage)
        faults.push_back(fmt::format("{} on stage {} reads {}, which is on the later stage {}",
                                     graph.blocks[b].name, stage, graph.blocks[producer].name,
                                     placement.stage_of_block[producer]));
    }
  }
}

// A value's gradient is summed last consumer first, and the partial sum travels against the stage
// order.
void fold_faults(const BlockGraph& graph, const Placement& placement,
                 std::vector<std::string>& faults) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const std::vector<int> consumers = graph.gradient_consumers(static_cast<int>(v));
    for (size_t i = 1; i < consumers.size(); ++i) {
      const int first = placement.stage_of_block[consumers[i - 1]];
      const int second = placement.stage_of_block[consumers[i]];
      if (first > second && second != kReplicated)
        faults.push_back(fmt::format(
            "the gradient of {} is summed from {} (stage {}) to {} (stage {}), against the "
            "schedule; put {} on stage {} or earlier",
            graph.values[v].name, graph.blocks[consumers[i]].name, second,
            graph.blocks[consumers[i - 1]].name, first, graph.blocks[consumers[i - 1]].name,
            second));
    }
  }
}

}  // namespace

int Placement::ranks() const {
  return rank_of_stage.empty() ? 0 : *std::ranges::max_element(rank_of_stage) + 1;
}

std::vector<int> Placement::blocks_run_by(const BlockGraph& graph, int stage) const {
  check_sizes(graph, *this, stage);
  return blocks_by_stage(graph)[stage];
}

std::vector<std::vector<int>> Placement::blocks_by_stage(const BlockGraph& graph) const {
  check(stage_of_block.size() == graph.blocks.size(), "placement: not one stage for each block");
  check(std::ranges::all_of(stage_of_block,
                            [&](int stage) { return stage >= kReplicated && stage < stages(); }),
        "placement: stage out of range");
  const Runs runs = runs_on(graph, *this);
  std::vector<std::vector<int>> result(stages());
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    for (int s = 0; s < stages(); ++s)
      if (runs(b, s)) result[s].push_back(static_cast<int>(b));
  return result;
}

std::vector<int> Placement::blocks_owned_by(const BlockGraph& graph, int stage) const {
  check_sizes(graph, *this, stage);
  const Runs runs = runs_on(graph, *this);
  std::vector<int> result;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    int owner = stage_of_block[b];
    if (owner == kReplicated) {  // the first that needs it; stage 0 when nobody does
      owner = 0;
      while (owner < stages() && !runs(b, owner)) ++owner;
      if (owner == stages()) owner = 0;
    }
    if (owner == stage) result.push_back(static_cast<int>(b));
  }
  return result;
}

std::vector<std::string> placement_faults(const BlockGraph& graph, const Placement& placement) {
  std::vector<std::string> faults = shape_faults(graph, placement);
  if (!faults.empty()) return faults;
  rank_faults(placement, faults);
  replication_faults(graph, placement, faults);
  edge_faults(graph, placement, faults);
  fold_faults(graph, placement, faults);
  std::vector<bool> busy(placement.stages(), false);
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const int stage = placement.stage_of_block[b];
    if (stage != kReplicated && graph.blocks[b].reaches_loss) busy[stage] = true;
  }
  for (size_t s = 0; s < busy.size(); ++s)
    if (!busy[s]) faults.push_back(fmt::format("stage {} runs no block of its own", s));
  return faults;
}

}  // namespace stagecraft
