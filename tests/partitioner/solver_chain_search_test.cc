#include <gtest/gtest.h>

#include <algorithm>

#include "partitioner/solver/chain_search.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using Chain = ChainSearch::Chain;

struct ChainProblem {
  std::vector<std::vector<ChainEdge>> edges;
  std::vector<std::vector<std::vector<int64_t>>> weights;
  std::vector<int64_t> limits;
};

ChainProblem random_chain_problem(uint64_t seed) {
  testing::Dice dice(seed);
  const int nodes = 3 + dice.below(7), stages = 1 + dice.below(std::min(4, nodes - 1));
  ChainProblem problem;
  problem.edges.resize(nodes);
  problem.weights.assign(stages, std::vector<std::vector<int64_t>>(nodes));
  for (int a = 0; a < nodes; ++a) {
    for (int b = a + 1; b < nodes; ++b) {
      if (dice.percent(25)) continue;
      problem.edges[a].push_back({.to = b, .time = dice.below(30)});  // ties are common
      for (int s = 0; s < stages; ++s) problem.weights[s][a].push_back(dice.below(20));
    }
  }
  for (int s = 0; s < stages; ++s) problem.limits.push_back(12 + dice.below(10));
  return problem;
}

// Every chain, limits ignored, with `excess` as its weight or the largest weight.
std::vector<Chain> all_chains(const ChainProblem& problem, bool excess) {
  std::vector<Chain> done;
  const auto extend = [&](auto& self, Chain chain) -> void {
    const size_t s = chain.nodes.size() - 1;
    const int a = chain.nodes.back();
    if (s == problem.limits.size()) {
      if (a + 1 == static_cast<int>(problem.edges.size())) done.push_back(chain);
      return;
    }
    for (size_t i = 0; i < problem.edges[a].size(); ++i) {
      Chain next = chain;
      next.nodes.push_back(problem.edges[a][i].to);
      next.bottleneck = std::max(next.bottleneck, problem.edges[a][i].time);
      next.weight =
          std::max(next.weight, problem.weights[s][a][i] - (excess ? problem.limits[s] : 0));
      self(self, next);
    }
  };
  extend(extend, {.nodes = {0}, .bottleneck = 0, .weight = -1000});
  return done;
}

bool within_limits(const ChainProblem& problem, const Chain& chain) {
  for (size_t s = 0; s < problem.limits.size(); ++s) {
    const std::vector<ChainEdge>& edges = problem.edges[chain.nodes[s]];
    const size_t i = std::ranges::find(edges, chain.nodes[s + 1], &ChainEdge::to) - edges.begin();
    if (problem.weights[s][chain.nodes[s]][i] > problem.limits[s]) return false;
  }
  return true;
}

TEST(SolverChainSearch, ShowsEveryChainInOrderAsEnumerationDoes) {
  int shown_in_total = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const ChainProblem problem = random_chain_problem(seed);
    std::vector<Chain> expected;
    for (const Chain& chain : all_chains(problem, false))
      if (within_limits(problem, chain)) expected.push_back(chain);
    std::ranges::sort(expected, {},
                      [](const Chain& c) { return std::tuple(c.bottleneck, c.weight, c.nodes); });
    const ChainSearch search(problem.edges, problem.weights, problem.limits);
    std::vector<Chain> shown;
    for (auto b = search.next_bottleneck(-1); b; b = search.next_bottleneck(*b))
      search.visit_at(*b, [&](const Chain& chain) {
        shown.push_back(chain);
        return true;
      });
    ASSERT_EQ(shown.size(), expected.size()) << "seed " << seed;
    for (size_t i = 0; i < shown.size(); ++i) {
      ASSERT_EQ(shown[i].nodes, expected[i].nodes) << "seed " << seed;
      ASSERT_EQ(shown[i].bottleneck, expected[i].bottleneck);
      ASSERT_EQ(shown[i].weight, expected[i].weight);
    }
    shown_in_total += static_cast<int>(shown.size());
  }
  EXPECT_GT(shown_in_total, 500);
}

TEST(SolverChainSearch, OrdersByExcessAsEnumerationDoes) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const ChainProblem problem = random_chain_problem(seed);
    std::vector<Chain> expected = all_chains(problem, true);
    std::ranges::sort(expected, {}, [](const Chain& c) { return std::tuple(c.weight, c.nodes); });
    std::vector<Chain> shown;
    ChainSearch(problem.edges, problem.weights, problem.limits)
        .visit_by_excess([&](const Chain& chain) {
          shown.push_back(chain);
          return true;
        });
    ASSERT_EQ(shown.size(), expected.size()) << "seed " << seed;
    for (size_t i = 0; i < shown.size(); ++i)
      ASSERT_EQ(shown[i].nodes, expected[i].nodes) << "seed " << seed;
  }
}

TEST(SolverChainSearch, StopsWhenTheVisitorSaysSo) {
  const ChainProblem problem{.edges = {{{1, 5}, {2, 5}}, {{2, 5}, {3, 5}}, {{3, 5}}, {}},
                             .weights = {{{0, 0}, {0, 0}, {0}, {}}, {{0, 0}, {0, 0}, {0}, {}}},
                             .limits = {1, 1}};
  int visits = 0;
  ChainSearch(problem.edges, problem.weights, problem.limits).visit_at(5, [&](const Chain&) {
    ++visits;
    return false;
  });
  EXPECT_EQ(visits, 1);
}

}  // namespace
}  // namespace stagecraft
