#include "partitioner/solver/chain_search.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <array>
#include <limits>
#include <queue>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Best completion of a chain from a node, by whether an edge that marks the chain has been taken
// already.
using Completion = std::vector<std::array<int64_t, 2>>;

struct Partial {
  int64_t bound;  // of every chain that starts like this
  std::vector<int> nodes;
  int64_t weight, time;
  bool marked;
};

// Lowest bound first; among equals the one that reads first.
struct Later {
  bool operator()(const Partial& a, const Partial& b) const {
    return a.bound != b.bound ? a.bound > b.bound : a.nodes > b.nodes;
  }
};

}  // namespace

// Which edges may be used, what a chain's largest edge is measured by, and which edge must occur.
struct ChainSearch::Rule {
  std::function<bool(int stage, const ChainEdge&, int64_t weight)> allows;
  std::function<int64_t(int stage, const ChainEdge&, int64_t weight)> measure;
  std::function<bool(const ChainEdge&)> marks;
};

ChainSearch::ChainSearch(std::vector<std::vector<ChainEdge>> edges,
                         std::vector<std::vector<std::vector<int64_t>>> weights,
                         std::vector<int64_t> limits)
    : edges_(std::move(edges)), weights_(std::move(weights)), limits_(std::move(limits)) {
  check(weights_.size() == limits_.size() && !limits_.empty() && !edges_.empty(),
        "chain search: sizes differ");
}

std::optional<int64_t> ChainSearch::next_bottleneck(int64_t floor) const {
  const int nodes = static_cast<int>(edges_.size());
  Completion after(nodes, {kNever, kNever});
  after[nodes - 1] = {kNever, 0};  // a chain that ends must have passed an edge above the floor
  for (int s = stages() - 1; s >= 0; --s) {
    Completion here(nodes, {kNever, kNever});
    tbb::parallel_for(0, nodes, [&](int a) {
      for (size_t i = 0; i < edges_[a].size(); ++i) {
        const ChainEdge& edge = edges_[a][i];
        if (weights_[s][a][i] > limits_[s]) continue;
        for (int marked = 0; marked < 2; ++marked) {
          const int64_t rest = after[edge.to][marked != 0 || edge.time > floor];
          if (rest != kNever)
            here[a][marked] = std::min(here[a][marked], std::max(edge.time, rest));
        }
      }
    });
    after = std::move(here);
  }
  if (after[0][0] == kNever) return std::nullopt;
  return after[0][0];
}

void ChainSearch::visit(const Rule& rule, const std::function<bool(const Chain&)>& visit) const {
  const int nodes = static_cast<int>(edges_.size());
  std::vector<Completion> completion(stages() + 1, Completion(nodes, {kNever, kNever}));
  completion[stages()][nodes - 1] = {kNever, std::numeric_limits<int64_t>::min()};
  for (int s = stages() - 1; s >= 0; --s) {
    tbb::parallel_for(0, nodes, [&](int a) {
      for (size_t i = 0; i < edges_[a].size(); ++i) {
        const ChainEdge& edge = edges_[a][i];
        const int64_t weight = weights_[s][a][i];
        if (!rule.allows(s, edge, weight)) continue;
        for (int marked = 0; marked < 2; ++marked) {
          const int64_t rest = completion[s + 1][edge.to][marked != 0 || rule.marks(edge)];
          if (rest == kNever) continue;
          int64_t& best = completion[s][a][marked];
          best = std::min(best, std::max(rule.measure(s, edge, weight), rest));
        }
      }
    });
  }
  if (completion[0][0][0] == kNever) return;
  std::priority_queue<Partial, std::vector<Partial>, Later> open;
  open.push({.bound = completion[0][0][0],
             .nodes = {0},
             .weight = std::numeric_limits<int64_t>::min(),
             .time = 0,
             .marked = false});
  while (!open.empty()) {
    const Partial partial = open.top();
    open.pop();
    const int s = static_cast<int>(partial.nodes.size()) - 1;
    if (s == stages()) {
      if (!visit({.nodes = partial.nodes, .bottleneck = partial.time, .weight = partial.weight}))
        return;
      continue;
    }
    const int a = partial.nodes.back();
    for (size_t i = 0; i < edges_[a].size(); ++i) {
      const ChainEdge& edge = edges_[a][i];
      const int64_t weight = weights_[s][a][i];
      if (!rule.allows(s, edge, weight)) continue;
      const bool marked = partial.marked || rule.marks(edge);
      const int64_t rest = completion[s + 1][edge.to][marked];
      if (rest == kNever) continue;
      Partial next{.bound = 0,
                   .nodes = partial.nodes,
                   .weight = std::max(partial.weight, rule.measure(s, edge, weight)),
                   .time = std::max(partial.time, edge.time),
                   .marked = marked};
      next.bound = std::max(next.weight, rest);
      next.nodes.push_back(edge.to);
      open.push(std::move(next));
    }
  }
}

void ChainSearch::visit_at(int64_t bottleneck,
                           const std::function<bool(const Chain&)>& visit_chain) const {
  visit({.allows = [&](int s, const ChainEdge& edge,
                       int64_t weight) { return edge.time <= bottleneck && weight <= limits_[s]; },
         .measure = [](int, const ChainEdge&, int64_t weight) { return weight; },
         .marks = [&](const ChainEdge& edge) { return edge.time == bottleneck; }},
        visit_chain);
}

void ChainSearch::visit_by_excess(const std::function<bool(const Chain&)>& visit_chain) const {
  visit({.allows = [](int, const ChainEdge&, int64_t) { return true; },
         .measure = [&](int s, const ChainEdge&, int64_t weight) { return weight - limits_[s]; },
         .marks = [](const ChainEdge&) { return true; }},
        visit_chain);
}

}  // namespace stagecraft
