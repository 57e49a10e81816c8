#include "partitioner/baselines/baselines.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "partitioner/base/error.h"
#include "partitioner/baselines/cuts.h"

namespace stagecraft {
namespace {

// torchgpipe's guide has 4 to 5 copies of the parameters for Adam: weight, gradient, two moments.
constexpr int64_t kAdamCopies = 4;

// Blocks that are placed together, in block position: one that runs, and those that never do.
using Items = std::vector<std::vector<int>>;

Items items_of(const BlockGraph& graph) {
  Items items;
  std::vector<int> idle;  // before the first block that runs
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    if (graph.blocks[b].reaches_loss) {
      items.push_back({b});
    } else {
      (items.empty() ? idle : items.back()).push_back(b);
    }
  }
  if (!items.empty()) items.front().insert(items.front().begin(), idle.begin(), idle.end());
  return items;
}

template <typename Weight>
std::vector<int64_t> weigh(const Items& items, const Weight& weight) {
  std::vector<int64_t> weights;
  for (const std::vector<int>& item : items) {
    int64_t sum = 0;
    for (const int b : item) sum += weight(b);
    weights.push_back(sum);
  }
  return weights;
}

Placement place_items(const BlockGraph& graph, const Items& items, const Cuts& cuts) {
  const int stages = static_cast<int>(cuts.size()) - 1;
  Placement placement;
  placement.stage_of_block.assign(graph.blocks.size(), 0);
  placement.recompute.assign(graph.blocks.size(), false);
  placement.rank_of_stage.resize(stages);
  std::iota(placement.rank_of_stage.begin(), placement.rank_of_stage.end(), 0);
  for (int s = 0; s < stages; ++s) {
    for (int i = cuts[s]; i < cuts[s + 1]; ++i) {
      for (const int b : items[i]) placement.stage_of_block[b] = s;
    }
  }
  check(placement_faults(graph, placement).empty(), "baselines: block order is no valid placement");
  return placement;
}

int64_t step_time(const BlockCost& cost) {
  return cost.forward.median.count + cost.backward_input.median.count +
         cost.backward_weight.median.count;
}

// What torchgpipe's profiler sees a layer allocate, forward and backward.
int64_t latent_bytes(const BlockCost& cost) {
  const int64_t kept = cost.saved_internal.count + cost.output.count;
  return kept + std::max(cost.workspace_forward.count, cost.workspace_backward.count);
}

}  // namespace

std::vector<Baseline> block_order_baselines(const BlockGraph& graph, const CostTable& costs,
                                            int stages) {
  const Items items = items_of(graph);
  const int count = static_cast<int>(items.size());
  if (stages < 1 || stages > count) {
    throw ConfigError(
        fmt::format("{} stages for {} blocks that run: give 1 to {}", stages, count, count));
  }
  const auto cost_of = [&](int b) -> const BlockCost& {
    return costs.blocks.at(graph.blocks[b].name);
  };
  const auto all = [&](int b) { return graph.blocks[b].parameters(); };
  const auto trainable = [&](int b) {
    return graph.blocks[b].trainable ? graph.blocks[b].parameters() : 0;
  };
  const auto time = [&](int b) {
    return graph.blocks[b].reaches_loss ? step_time(cost_of(b)) : int64_t{0};
  };
  const auto size = [&](int b) {
    const int64_t latent = graph.blocks[b].reaches_loss ? latent_bytes(cost_of(b)) : 0;
    return latent + kAdamCopies * cost_of(b).parameters.count;
  };
  const std::vector<int64_t> times = weigh(items, time);
  std::vector<Baseline> found;
  const auto add = [&](const char* name, const char* how, const Cuts& cuts) {
    found.push_back({.name = name, .how = how, .placement = place_items(graph, items, cuts)});
  };
  add("DeepSpeed uniform", "as many blocks on every stage", uniform_cuts(count, stages));
  add("DeepSpeed parameters", "trainable parameters; what is frozen weighs nothing",
      least_spread_cuts(weigh(items, trainable), stages));
  if (std::ranges::any_of(graph.blocks, [](const Block& block) { return !block.trainable; })) {
    add("DeepSpeed parameters, nothing frozen", "all parameters, as when requires_grad stays on",
        least_spread_cuts(weigh(items, all), stages));
  }
  add("torchgpipe by time", "forward and backward time of the blocks",
      block_partition_cuts(times, stages));
  add("torchgpipe by size", "what a block allocates, and four times its parameters",
      block_partition_cuts(weigh(items, size), stages));
  add("least largest stage, in block order", "the time of the slowest stage",
      min_max_cuts(times, stages));
  return found;
}

}  // namespace stagecraft
