// The message table: which values and partial gradients travel, packed per (action, destination
// rank).
#include <algorithm>
#include <map>
#include <tuple>

#include "partitioner/base/error.h"
#include "partitioner/schedule/from_flow.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {
namespace {

std::vector<Message> transfers_of(const BlockGraph& graph, const Flow& flow,
                                  const Placement& placement, int64_t samples) {
  std::map<std::tuple<Direction, int, int>, Message>
      table;  // direction, source stage, destination rank
  auto add = [&](Direction direction, const Hop& hop) {
    const int src_rank = placement.rank_of_stage[hop.from_stage];
    const int dst_rank = placement.rank_of_stage[hop.to_stage];
    if (src_rank == dst_rank) return;
    auto [entry, is_new] = table.try_emplace({direction, hop.from_stage, dst_rank});
    Message& message = entry->second;
    if (is_new) {
      message = {.direction = direction,
                 .src_stage = hop.from_stage,
                 .src_rank = src_rank,
                 .dst_stage = hop.to_stage,
                 .dst_rank = dst_rank,
                 .micro_batch = 0,
                 .items = {},
                 .bytes = {}};
    }
    message.dst_stage = direction == Direction::kForward
                            ? std::min(message.dst_stage, hop.to_stage)
                            : std::max(message.dst_stage, hop.to_stage);
    // Hops come in the order of values: a value that two stages of the rank read is the last item
    // already.
    if (!message.items.empty() && message.items.back().value == hop.value) return;
    message.items.push_back({hop.value});
    message.bytes += graph.values[hop.value].bytes(samples);
  };
  for (const Hop& hop : flow.forward) add(Direction::kForward, hop);
  for (const Hop& hop : flow.backward) add(Direction::kBackward, hop);
  std::vector<Message> transfers;
  for (auto& [key, message] : table) transfers.push_back(std::move(message));
  return transfers;
}

}  // namespace

std::vector<int64_t> micro_batch_sizes(int64_t batch, int64_t micro_batch) {
  check(batch > 0 && micro_batch > 0, "batch and micro-batch are at least 1");
  std::vector<int64_t> sizes(static_cast<size_t>(batch / micro_batch), micro_batch);
  if (batch % micro_batch != 0) sizes.push_back(batch % micro_batch);
  return sizes;
}

std::vector<Message> transfers_of_micro_batch(const BlockGraph& graph, const Placement& placement,
                                              int64_t samples) {
  return transfers_of(graph, derive_flow(graph, placement), placement, samples);
}

std::vector<Message> message_table(const BlockGraph& graph, const Placement& placement,
                                   const std::vector<int64_t>& micro_batch_sizes) {
  return message_table(graph, derive_flow(graph, placement), placement, micro_batch_sizes);
}

std::vector<Message> message_table(const BlockGraph& graph, const Flow& flow,
                                   const Placement& placement,
                                   const std::vector<int64_t>& micro_batch_sizes) {
  std::vector<Message> table, transfers;
  for (size_t j = 0; j < micro_batch_sizes.size(); ++j) {
    if (j == 0 || micro_batch_sizes[j] != micro_batch_sizes[j - 1])
      transfers = transfers_of(graph, flow, placement, micro_batch_sizes[j]);
    for (Message& message : transfers) message.micro_batch = static_cast<int>(j);
    table.insert(table.end(), transfers.begin(), transfers.end());
  }
  return table;
}

}  // namespace stagecraft
