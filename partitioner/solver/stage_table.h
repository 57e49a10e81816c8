// A graph made ready for the search: its down-sets, and what every possible stage costs on every
// kind of device.
//
// The down-sets are nodes, 0 the empty one and the last the full one; a possible stage is an edge
// from a down-set to a larger one that contains it, and a split in p stages is a chain of p edges
// from the first node to the last. Immutable after construction; the arguments must outlive it. Any
// thread.
#pragma once

#include <cstdint>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/graph/graph.h"
#include "partitioner/solver/down_sets.h"
#include "partitioner/solver/stage_costs.h"

namespace stagecraft {

class StageTable {
 public:
  struct Edge {
    int from = 0, to = 0;
  };

  // Throws ResourceError when there are too many units or down-sets.
  StageTable(const BlockGraph& graph, const ClusterCosts& costs);

  const BlockGraph& graph() const { return graph_; }
  const ClusterCosts& costs() const { return costs_; }
  const UnitOrder& order() const { return order_; }
  const StageCosts& stage_costs(int kind) const { return stage_costs_[kind]; }
  int kinds() const { return static_cast<int>(stage_costs_.size()); }
  int units() const { return static_cast<int>(order_.units.blocks.size()); }

  int nodes() const { return static_cast<int>(sets_.size()); }
  int edges() const { return static_cast<int>(edges_.size()); }
  const Edge& edge(int e) const { return edges_[e]; }
  // Edges from `node` have consecutive numbers, ascending by where they go.
  int first_edge(int node) const { return first_edge_[node]; }
  int end_edge(int node) const { return first_edge_[node + 1]; }
  int find_edge(int from, int to) const;  // -1: none
  const UnitSet& set(int node) const { return sets_[node]; }
  UnitSet stage(int e) const { return sets_[edges_[e].to].minus(sets_[edges_[e].from]); }
  const StageCost& cost(int kind, int e) const { return cost_[kind][e]; }

  // Stage `b` needs what stage `a` makes; and hands it gradients.
  bool feeds(int a, int b) const { return readers_[a].intersects(stage(b)); }
  bool gets_gradient(int a, int b) const { return givers_[a].intersects(stage(b)); }
  bool has_backward(int e) const { return cost_[0][e].has_backward; }
  // Whatever stage ends where `e` begins, `e` needs it, forward and (where both have gradients)
  // backward.
  bool surely_follows(int e) const { return surely_follows_[e]; }
  // Bytes that a micro-batch of the table's size sends at least from stage `a` to `b`, and back.
  int64_t forward_bytes(int a, int b) const;
  int64_t backward_bytes(int a, int b) const;
  // All that the stages of a complete chain send each other for such a micro-batch, added to
  // `forward[from * stages + to]` and `backward[...]`; gradients go as docs/schedule.md has it.
  // `relays`: as Placement::relays.
  void add_traffic(const std::vector<int>& chain, bool relays, std::vector<int64_t>& forward,
                   std::vector<int64_t>& backward) const;

  // Sums over the units of a down-set, replicated blocks left out, on the fastest kind: never more
  // than what the stages of any chain to `node` take together.
  int64_t least_forward(int node) const { return least_forward_[node]; }
  int64_t least_backward(int node) const { return least_backward_[node]; }

  // For stages that need not follow each other in a line, the longest ways through the graph, over
  // units on the fastest kind: to the stage's first blocks, and back from them; from the stage on
  // to the prediction, and from there back to the stage, outside of both.
  int64_t way_to(int e) const { return ways_[e].to; }
  int64_t way_back(int e) const { return ways_[e].back; }
  int64_t way_on(int e) const { return ways_[e].on; }
  int64_t way_home(int e) const { return ways_[e].home; }
  // The same ways through what is left behind `node` only, for an earlier stage.
  struct Rest {
    int64_t on = 0, home = 0;
    bool gives = false;  // something behind `node` hands the stage a gradient
  };
  Rest rest_after(int e, int node) const;

 private:
  struct Product {  // what a unit makes for others
    int64_t bytes = 0;
    UnitSet readers, givers;
  };
  int64_t bytes_between(int a, int b, UnitSet Product::* users) const;
  void note_products();
  void note_least_times();
  void make_edges();
  void note_ways();
  void note_links();

  const BlockGraph& graph_;
  const ClusterCosts& costs_;
  UnitOrder order_;
  std::vector<StageCosts> stage_costs_;  // by kind
  std::vector<UnitSet> sets_;
  std::vector<Edge> edges_;
  std::vector<int> first_edge_;
  std::vector<std::vector<StageCost>> cost_;
  std::vector<std::vector<Product>> products_;           // by unit
  std::vector<UnitSet> readers_, givers_;                // by edge
  std::vector<bool> surely_follows_;                     // by edge
  std::vector<int64_t> unit_forward_, unit_backward_;    // on the fastest kind
  std::vector<int64_t> least_forward_, least_backward_;  // by node
  struct Ways {
    int64_t to = 0, back = 0, on = 0, home = 0;
  };
  std::vector<Ways> ways_;                    // by edge
  std::vector<int64_t> unit_on_, unit_home_;  // by unit, itself included
};

}  // namespace stagecraft
