// Which blocks the search keeps together (docs/search.md, "Units").
#include <algorithm>
#include <numeric>
#include <queue>

#include "partitioner/base/error.h"
#include "partitioner/solver/down_sets.h"
#include "partitioner/solver/units.h"

namespace stagecraft {
namespace {

class Groups {  // union-find; a group is named by its first block
 public:
  explicit Groups(size_t blocks) : parent_(blocks) { std::iota(parent_.begin(), parent_.end(), 0); }
  int of(int block) {
    while (parent_[block] != block) block = parent_[block] = parent_[parent_[block]];
    return block;
  }
  void join(int a, int b) {
    a = of(a);
    b = of(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<int> parent_;
};

std::vector<int> producers_of(const BlockGraph& graph, const Block& block) {
  std::vector<int> producers;
  for (int value : block.inputs)
    if (graph.values[value].producer >= 0) producers.push_back(graph.values[value].producer);
  return producers;
}

// A frozen time embedding that reads local inputs only costs less to run again than to send.
bool is_replicated(const BlockGraph& graph, const Block& block) {
  return block.kind == BlockKind::kTimeEmbedding && !block.trainable &&
         block.state == BlockState::kF && block.reaches_loss &&
         producers_of(graph, block).empty() && block.output != graph.output;
}

int first_consumer(const BlockGraph& graph, const Block& block) {
  const std::vector<int>& consumers = graph.values[block.output].consumers;
  return consumers.empty() ? -1 : consumers.front();
}

void join_neighbours(const BlockGraph& graph, const std::vector<bool>& replicated, Groups& groups) {
  const auto is_searched = [&](int b) { return graph.blocks[b].reaches_loss && !replicated[b]; };
  const auto join = [&](int a, int b) {
    if (b >= 0 && is_searched(a) && is_searched(b)) groups.join(a, b);
  };
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    const Block& block = graph.blocks[b];
    const std::vector<int> producers = producers_of(graph, block);
    if (block.kind == BlockKind::kTimeEmbedding || block.kind == BlockKind::kHintConv)
      join(b, first_consumer(graph, block));
    if (block.kind == BlockKind::kZeroConv && !producers.empty()) join(b, producers.front());
    if (block.kind != BlockKind::kSum) continue;
    // The sum that takes in the hint stays with all of its producers, or the hint's chain would be
    // a branch to search.
    const bool takes_hint = std::ranges::any_of(
        producers, [&](int p) { return graph.blocks[p].kind == BlockKind::kHintConv; });
    if (!takes_hint) join(b, first_consumer(graph, block));
    for (int p : producers)
      if (takes_hint) join(b, p);
  }
}

// A block that never runs costs its parameters only, and no stage may consist of such blocks: it
// goes with the nearest running block above it that it hangs on, or else before it in position.
void join_idle(const BlockGraph& graph, const std::vector<bool>& replicated, Groups& groups) {
  const auto is_running = [&](int b) { return graph.blocks[b].reaches_loss && !replicated[b]; };
  int before = -1;
  for (int b = 0; b < static_cast<int>(graph.blocks.size()) && before < 0; ++b)
    if (is_running(b)) before = b;
  std::vector<int> host(graph.blocks.size(), -1);
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    if (is_running(b)) {
      before = host[b] = b;
    } else if (!graph.blocks[b].reaches_loss) {
      host[b] = before;
      for (int p : producers_of(graph, graph.blocks[b]))
        if (host[p] >= 0) host[b] = host[p];
      if (host[b] >= 0) groups.join(b, host[b]);
    }
  }
}

// Groups that would have to be both before and after each other become one.
void join_cycles(const std::vector<std::pair<int, int>>& pairs, size_t blocks, Groups& groups) {
  std::vector<std::vector<bool>> reaches(blocks, std::vector<bool>(blocks, false));
  for (auto [a, b] : pairs) reaches[groups.of(a)][groups.of(b)] = true;
  for (size_t k = 0; k < blocks; ++k)
    for (size_t i = 0; i < blocks; ++i)
      if (reaches[i][k])
        for (size_t j = 0; j < blocks; ++j)
          if (reaches[k][j]) reaches[i][j] = true;
  for (size_t i = 0; i < blocks; ++i)
    for (size_t j = i + 1; j < blocks; ++j)
      if (reaches[i][j] && reaches[j][i]) groups.join(static_cast<int>(i), static_cast<int>(j));
}

// Topological order of the groups, the one with the earliest block first where there is a choice.
std::vector<int> sorted_groups(const std::vector<std::pair<int, int>>& pairs,
                               const std::vector<bool>& replicated, Groups& groups) {
  const size_t blocks = replicated.size();
  std::vector<std::vector<int>> after(blocks);
  std::vector<int> waits_for(blocks, 0);
  for (auto [a, b] : pairs) {
    if (groups.of(a) == groups.of(b)) continue;
    after[groups.of(a)].push_back(groups.of(b));
    ++waits_for[groups.of(b)];
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  size_t total = 0;
  for (int b = 0; b < static_cast<int>(blocks); ++b) {
    if (replicated[b] || groups.of(b) != b) continue;
    ++total;
    if (waits_for[b] == 0) ready.push(b);
  }
  std::vector<int> sorted;
  while (!ready.empty()) {
    const int group = ready.top();
    ready.pop();
    sorted.push_back(group);
    for (int next : after[group])
      if (--waits_for[next] == 0) ready.push(next);
  }
  check(sorted.size() == total, "glue: the groups have a cycle");
  return sorted;
}

}  // namespace

Units glue(const BlockGraph& graph) {
  Units units;
  std::vector<bool> replicated(graph.blocks.size(), false);
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    replicated[b] = is_replicated(graph, graph.blocks[b]);
    if (replicated[b]) units.replicated.push_back(static_cast<int>(b));
  }
  Groups groups(graph.blocks.size());
  join_neighbours(graph, replicated, groups);
  join_idle(graph, replicated, groups);
  const auto pairs = stage_order_pairs(graph, units.replicated);
  join_cycles(pairs, graph.blocks.size(), groups);
  std::vector<std::vector<int>> members(graph.blocks.size());
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    if (!replicated[b]) members[groups.of(static_cast<int>(b))].push_back(static_cast<int>(b));
  for (int group : sorted_groups(pairs, replicated, groups)) units.blocks.push_back(members[group]);
  return units;
}

}  // namespace stagecraft
