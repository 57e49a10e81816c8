// Best chains of nested down-sets, as a problem of numbers: nodes, weighted edges, one edge a
// stage.
//
// Knows nothing of blocks. Node 0 is the empty set, the last node the full one; a chain of p edges
// from the first to the last is a split in p stages. Deterministic for any number of threads; any
// thread may call const functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace stagecraft {

struct ChainEdge {
  int to = 0;
  int64_t time = 0;
};

class ChainSearch {
 public:
  struct Chain {
    std::vector<int> nodes;  // p + 1, first to last
    int64_t bottleneck = 0;  // largest time
    int64_t weight = 0;      // largest weight
  };

  // `edges[a]` go to larger nodes, ascending. `weights[s][a][i]`: weight of edge i of node a as
  // stage s; an edge heavier than `limits[s]` may not be stage s.
  ChainSearch(std::vector<std::vector<ChainEdge>> edges,
              std::vector<std::vector<std::vector<int64_t>>> weights, std::vector<int64_t> limits);

  // Smallest bottleneck above `floor` of a chain within the limits; nothing when there is none.
  std::optional<int64_t> next_bottleneck(int64_t floor) const;
  // Shows the chains within the limits whose bottleneck is exactly `bottleneck` by (weight, nodes),
  // until `visit` returns false.
  void visit_at(int64_t bottleneck, const std::function<bool(const Chain&)>& visit) const;
  // Shows all chains, limits ignored, by (largest weight above its stage's limit, nodes), until
  // `visit` returns false. `weight` is that excess.
  void visit_by_excess(const std::function<bool(const Chain&)>& visit) const;

 private:
  struct Rule;
  void visit(const Rule& rule, const std::function<bool(const Chain&)>& visit) const;
  int stages() const { return static_cast<int>(limits_.size()); }

  std::vector<std::vector<ChainEdge>> edges_;
  std::vector<std::vector<std::vector<int64_t>>> weights_;
  std::vector<int64_t> limits_;
};

}  // namespace stagecraft
