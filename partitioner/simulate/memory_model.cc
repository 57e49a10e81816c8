#include "partitioner/simulate/memory_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/simulate/costs.h"
#include "partitioner/simulate/rank_replay.h"

namespace stagecraft {
namespace {

struct LineNames {
  std::string_view text, key;
};

constexpr std::array<LineNames, kMemoryLines> kNames = {{{"process base", "process_base"},
                                                         {"weights", "weights"},
                                                         {"gradients", "gradients"},
                                                         {"master weights", "master_weights"},
                                                         {"optimizer", "optimizer"},
                                                         {"activations", "activations"},
                                                         {"recompute", "recompute"},
                                                         {"boundary", "boundary"},
                                                         {"workspace", "workspace"},
                                                         {"comm buffers", "comm_buffers"},
                                                         {"slack", "slack"}}};

// Parameters of the blocks that the rank runs or owns, each block once.
void add_static(const ReplayInput& input, int rank, RankMemory& memory) {
  std::set<int> here;
  for (int s = 0; s < input.placement.stages(); ++s) {
    if (input.placement.rank_of_stage[s] != rank) continue;
    here.insert(input.flow.blocks[s].begin(), input.flow.blocks[s].end());
    const std::vector<int> owned = input.placement.blocks_owned_by(input.graph, s);
    here.insert(owned.begin(), owned.end());
  }
  const bool mixed = input.table.precision != "fp32";
  for (int b : here) {
    const Block& block = input.graph.blocks[b];
    const int64_t n = block.parameters();
    memory[MemoryLine::kWeights] += {n * (mixed ? 2 : 4)};
    if (!block.trainable) continue;
    if (mixed) memory[MemoryLine::kMasterWeights] += {n * 4};
    if (!block.reaches_loss) continue;
    memory[MemoryLine::kGradients] += {n * 4};
    memory[MemoryLine::kOptimizer] += {n * 8};
  }
}

// Directed pairs that the rank sends or receives on.
int64_t channels_of(const Schedule& schedule, int rank) {
  std::set<std::pair<int, int>> channels;
  for (const Message& message : schedule.messages) {
    if (message.src_rank == rank || message.dst_rank == rank) {
      channels.emplace(message.src_rank, message.dst_rank);
    }
  }
  return static_cast<int64_t>(channels.size());
}

}  // namespace

std::string_view to_string(MemoryLine line) { return kNames[static_cast<size_t>(line)].text; }
std::string_view key_of(MemoryLine line) { return kNames[static_cast<size_t>(line)].key; }

Bytes RankMemory::total() const {
  Bytes sum;
  for (Bytes line : lines) sum += line;
  return sum;
}

Bytes fullest_of(const std::vector<RankMemory>& ranks) {
  Bytes most;
  for (const RankMemory& rank : ranks) most = std::max(most, rank.total());
  return most;
}

Bytes RankMemory::without_base() const { return total() - (*this)[MemoryLine::kProcessBase]; }

std::vector<RankMemory> predict_memory(const BlockGraph& graph, const Placement& placement,
                                       const ClusterCosts& costs,
                                       const std::vector<Device>& devices, const Schedule& schedule,
                                       const std::vector<int64_t>& micro_batch_sizes) {
  const MemoryModel model(graph, placement, costs, devices, schedule, micro_batch_sizes);
  std::vector<RankMemory> ranks;
  for (int r = 0; r < static_cast<int>(schedule.ranks.size()); ++r)
    ranks.push_back(model.of_rank(r, placement));
  return ranks;
}

MemoryModel::MemoryModel(const BlockGraph& graph, const Placement& placement,
                         const ClusterCosts& costs, const std::vector<Device>& devices,
                         const Schedule& schedule, const std::vector<int64_t>& micro_batch_sizes)
    : graph_(graph),
      costs_(costs),
      devices_(devices),
      schedule_(schedule),
      micro_batch_sizes_(micro_batch_sizes),
      flow_(derive_flow(graph, placement)),
      by_kind_(block_costs_by_kind(graph, costs)) {
  check(devices.size() >= schedule.ranks.size(), "there are fewer devices than ranks");
}

RankMemory MemoryModel::of_rank(int rank, const Placement& placement) const {
  const ReplayInput input{.graph = graph_,
                          .placement = placement,
                          .table = costs_.of_rank(rank),
                          .costs = by_kind_[costs_.kind_of_rank(rank)],
                          .flow = flow_,
                          .schedule = schedule_,
                          .micro_batch_sizes = micro_batch_sizes_};
  RankMemory memory;
  add_static(input, rank, memory);
  const DynamicMemory peak = replay_rank(input, rank);
  const Device& device = devices_[rank];
  memory[MemoryLine::kProcessBase] = device.base;
  memory[MemoryLine::kActivations] = peak.activations;
  memory[MemoryLine::kRecompute] = peak.recompute;
  memory[MemoryLine::kBoundary] = peak.boundary;
  memory[MemoryLine::kWorkspace] = peak.workspace;
  memory[MemoryLine::kCommBuffers] = device.comm_buffer_per_peer * channels_of(schedule_, rank);
  const double dynamic = static_cast<double>(peak.total().count);
  memory[MemoryLine::kSlack] = {std::llround(device.slack_fraction * dynamic)};
  return memory;
}

}  // namespace stagecraft
