#include "partitioner/solver/chain_walk.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "partitioner/base/sorted.h"

namespace stagecraft {
namespace {

// A step may be longer than the one before by this part of it at first, by nothing at the end.
constexpr double kFirstThreshold = 0.03;

std::vector<int> sizes_of(const StageTable& table) {
  std::vector<int> sizes;
  for (int node = 0; node < table.nodes(); ++node)
    sizes.push_back(static_cast<int>(table.set(node).members().size()));
  return sizes;
}

// Random changes of a chain.
class Moves {
 public:
  Moves(const StageTable& table, const std::vector<int>& class_of_rank,
        const std::vector<std::vector<int>>& near, uint64_t seed)
      : table_(table), class_of_rank_(class_of_rank), near_(near), random_(seed) {}

  // Leaves no edges when the change is impossible.
  Chain change(const Chain& chain) {
    Chain other = chain;
    const int stages = static_cast<int>(chain.edges.size());
    const int kind = below(8);
    if (kind == 0) {
      const int a = below(stages), b = below(stages);
      if (class_of_rank_[chain.ranks[a]] != class_of_rank_[chain.ranks[b]]) {
        std::swap(other.ranks[a], other.ranks[b]);
        put_in_order(other.ranks);
        return other;
      }
    }
    std::vector<int> nodes{0};
    for (const int e : chain.edges) nodes.push_back(table_.edge(e).to);
    const int cut = 1 + below(stages - 1);
    if (kind < 3) {  // anywhere between its neighbours
      const int first = table_.first_edge(nodes[cut - 1]);
      const int ways = table_.end_edge(nodes[cut - 1]) - first;
      nodes[cut] = table_.edge(first + below(ways)).to;
    } else {
      move_near(nodes[cut]);
      if (kind < 5) move_near(nodes[1 + below(stages - 1)]);
    }
    for (int s = 0; s < stages; ++s) {
      other.edges[s] = nodes[s] < nodes[s + 1] ? table_.find_edge(nodes[s], nodes[s + 1]) : -1;
      if (other.edges[s] < 0) return {};
    }
    return other;
  }

 private:
  int below(int limit) { return static_cast<int>(random_() % static_cast<uint64_t>(limit)); }
  void move_near(int& node) {
    if (!near_[node].empty()) node = near_[node][below(static_cast<int>(near_[node].size()))];
  }

  // Equal devices in ascending rank.
  void put_in_order(std::vector<int>& ranks) const {
    std::map<int, std::vector<int>> left;  // by class, descending
    for (const int rank : ranks) left[class_of_rank_[rank]].push_back(rank);
    for (auto& [device_class, members] : left) std::ranges::sort(members, std::greater<>());
    for (int& rank : ranks) {
      std::vector<int>& members = left[class_of_rank_[rank]];
      rank = members.back();
      members.pop_back();
    }
  }

  const StageTable& table_;
  const std::vector<int>& class_of_rank_;
  const std::vector<std::vector<int>>& near_;
  std::mt19937_64 random_;
};

}  // namespace

ChainWalk::ChainWalk(const StageTable& table, std::vector<int> class_of_rank, StepOf step_of)
    : table_(table),
      class_of_rank_(std::move(class_of_rank)),
      step_of_(std::move(step_of)),
      near_(table.nodes()) {
  const std::vector<int> sizes = sizes_of(table);
  std::vector<std::vector<int>> next(table.nodes());
  for (int e = 0; e < table.edges(); ++e) {
    const auto [from, to] = table.edge(e);
    if (sizes[to] != sizes[from] + 1) continue;
    next[from].push_back(to);
    next[to].push_back(from);
  }
  for (int a = 0; a < table.nodes(); ++a) {
    for (const int b : next[a]) {
      near_[a].push_back(b);
      for (const int c : next[b])
        if (c != a) near_[a].push_back(c);
    }
    sort_and_unique(near_[a]);
  }
}

TimedChain ChainWalk::best_from(TimedChain from, int moves, uint64_t seed) const {
  TimedChain best = from;
  if (from.chain.edges.size() < 2) return best;  // no cut to move
  Moves random(table_, class_of_rank_, near_, seed);
  for (int i = 0; i < moves; ++i) {
    const Chain other = random.change(from.chain);
    if (other.edges.empty() || other == from.chain) continue;
    const double threshold = kFirstThreshold * (1 - static_cast<double>(i) / moves);
    const auto most = static_cast<int64_t>(static_cast<double>(from.step) * (1 + threshold));
    const int64_t step = step_of_(other, most + 1);
    if (step > most) continue;
    from = {.step = step, .chain = other};
    if (from < best) best = from;
  }
  return best;
}

}  // namespace stagecraft
