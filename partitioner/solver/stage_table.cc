#include "partitioner/solver/stage_table.h"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>

#include <algorithm>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxDownSets = 3000;  // 4.5 million possible stages

}  // namespace

StageTable::StageTable(const BlockGraph& graph, const ClusterCosts& costs)
    : graph_(graph),
      costs_(costs),
      order_(order_units(graph, glue(graph))),
      sets_(down_sets(order_, kMaxDownSets)) {
  for (int kind = 0; kind < costs.kinds(); ++kind)
    stage_costs_.emplace_back(graph, order_, costs.of_kind(kind));
  note_products();
  note_least_times();
  make_edges();
  note_links();
  note_ways();
}

void StageTable::note_least_times() {
  for (int u = 0; u < static_cast<int>(order_.units.blocks.size()); ++u) {
    unit_forward_.push_back(stage_costs_[0].unit_forward(u));
    unit_backward_.push_back(stage_costs_[0].unit_backward(u));
    for (const StageCosts& kind : stage_costs_) {
      unit_forward_[u] = std::min(unit_forward_[u], kind.unit_forward(u));
      unit_backward_[u] = std::min(unit_backward_[u], kind.unit_backward(u));
    }
  }
  for (const UnitSet& set : sets_) {
    least_forward_.push_back(0);
    least_backward_.push_back(0);
    for (int u : set.members()) {
      least_forward_.back() += unit_forward_[u];
      least_backward_.back() += unit_backward_[u];
    }
  }
}

void StageTable::note_products() {
  products_.resize(order_.units.blocks.size());
  for (const Value& value : graph_.values) {
    if (value.producer < 0 || order_.unit_of_block[value.producer] < 0) continue;
    Product product{.bytes = value.bytes(costs_.micro_batch()).count, .readers = {}, .givers = {}};
    for (int consumer : value.consumers) {
      if (!graph_.blocks[consumer].reaches_loss) continue;
      product.readers.add(order_.unit_of_block[consumer]);
      if (value.carries_grad) product.givers.add(order_.unit_of_block[consumer]);
    }
    products_[order_.unit_of_block[value.producer]].push_back(product);
  }
}

void StageTable::make_edges() {
  const int count = nodes();
  for (int a = 0; a < count; ++a) {
    first_edge_.push_back(edges());
    for (int b = a + 1; b < count; ++b)
      if (sets_[a].is_subset_of(sets_[b])) edges_.push_back({.from = a, .to = b});
  }
  first_edge_.push_back(edges());
  cost_.assign(stage_costs_.size(), std::vector<StageCost>(edges_.size()));
  for (int kind = 0; kind < kinds(); ++kind) {
    tbb::enumerable_thread_specific<StageReplay> replays(
        [&] { return stage_costs_[kind].make_replay(); });
    tbb::parallel_for(0, count, [&](int a) {
      StageReplay& replay = replays.local();
      for (int e = first_edge_[a]; e < first_edge_[a + 1]; ++e) {
        const UnitSet units = stage(e);
        cost_[kind][e] = stage_costs_[kind].of(units, replay);
      }
    });
  }
}

void StageTable::note_ways() {
  const int units = static_cast<int>(products_.size());
  // Before each unit, and from each unit on, itself included; gradients go only where some are
  // handed on.
  std::vector<int64_t> to(units, 0), back(units, 0), on(unit_forward_), home(unit_backward_);
  std::vector<UnitSet> before(units);
  for (int u = 0; u < units; ++u)
    for (const Product& product : products_[u]) {
      for (int reader : product.readers.members()) {
        if (reader == u) continue;
        before[reader].add(u);
        to[reader] = std::max(to[reader], to[u] + unit_forward_[u]);
      }
      for (int giver : product.givers.members())
        if (giver != u) back[giver] = std::max(back[giver], back[u] + unit_backward_[u]);
    }
  for (int u = units - 1; u >= 0; --u)
    for (const Product& product : products_[u]) {
      for (int reader : product.readers.members())
        if (reader != u) on[u] = std::max(on[u], on[reader] + unit_forward_[u]);
      for (int giver : product.givers.members())
        if (giver != u) home[u] = std::max(home[u], home[giver] + unit_backward_[u]);
    }
  unit_on_ = std::move(on);
  unit_home_ = std::move(home);
  for (int e = 0; e < edges(); ++e) {
    Ways ways;
    for (int u : stage(e).members()) {
      if (!before[u].is_subset_of(sets_[edges_[e].from])) continue;
      ways.to = std::max(ways.to, to[u]);
      ways.back = std::max(ways.back, back[u]);
    }
    const Rest rest = rest_after(e, edges_[e].to);
    ways.on = rest.on;
    ways.home = rest.home;
    ways_.push_back(ways);
  }
}

StageTable::Rest StageTable::rest_after(int e, int node) const {
  Rest rest;
  for (int u : readers_[e].minus(sets_[node]).members()) rest.on = std::max(rest.on, unit_on_[u]);
  for (int u : givers_[e].minus(sets_[node]).members()) {
    rest.home = std::max(rest.home, unit_home_[u]);
    rest.gives = true;
  }
  return rest;
}

// The stage before a cut holds a unit that no other unit of the down-set needs. A stage that needs
// every such unit of the down-set surely follows. The same with gradients.
void StageTable::note_links() {
  const int units = static_cast<int>(products_.size());
  std::vector<UnitSet> needed_by(units), grads_from(units);
  const auto has_gradient = [&](int u) { return stage_costs_[0].unit_has_backward(u); };
  for (int u = 0; u < units; ++u) {
    for (const Product& product : products_[u]) {
      needed_by[u].add_all(product.readers);
      grads_from[u].add_all(product.givers);
    }
    needed_by[u].remove(u);
    grads_from[u].remove(u);
  }
  readers_.resize(edges_.size());
  givers_.resize(edges_.size());
  for (int a = 0; a < nodes(); ++a) {
    const UnitSet& inside = sets_[a];
    std::vector<UnitSet> needs, gradient_needs;
    for (int u : inside.members()) {
      if (!needed_by[u].intersects(inside)) needs.push_back(needed_by[u]);
      bool is_end = has_gradient(u);
      for (int giver : grads_from[u].members())
        is_end = is_end && !(inside.has(giver) && has_gradient(giver));
      if (is_end) gradient_needs.push_back(grads_from[u]);
    }
    for (int e = first_edge_[a]; e < first_edge_[a + 1]; ++e) {
      const UnitSet here = stage(e);
      for (int u : here.members()) {
        readers_[e].add_all(needed_by[u]);
        givers_[e].add_all(grads_from[u]);
      }
      const auto is_needed = [&](const UnitSet& by) { return by.intersects(here); };
      surely_follows_.push_back(
          std::ranges::all_of(needs, is_needed) &&
          (!has_backward(e) || std::ranges::all_of(gradient_needs, is_needed)));
    }
  }
}

int StageTable::find_edge(int from, int to) const {
  const auto begin = edges_.begin() + first_edge_[from],
             end = edges_.begin() + first_edge_[from + 1];
  const auto found = std::ranges::lower_bound(begin, end, to, {}, &Edge::to);
  return found != end && found->to == to ? static_cast<int>(found - edges_.begin()) : -1;
}

int64_t StageTable::bytes_between(int a, int b, UnitSet Product::* users) const {
  const UnitSet there = stage(b);
  int64_t sum = 0;
  for (int u : stage(a).members())
    for (const Product& product : products_[u])
      if ((product.*users).intersects(there)) sum += product.bytes;
  return sum;
}

int64_t StageTable::forward_bytes(int a, int b) const {
  return bytes_between(a, b, &Product::readers);
}

// The gradient of a value ends its way at its producer: what the next stage that reads it has
// summed up.
int64_t StageTable::backward_bytes(int a, int b) const {
  return bytes_between(a, b, &Product::givers);
}

void StageTable::add_traffic(const std::vector<int>& chain, bool relays,
                             std::vector<int64_t>& forward, std::vector<int64_t>& backward) const {
  const int p = static_cast<int>(chain.size());
  std::vector<UnitSet> stages;
  for (int e : chain) stages.push_back(stage(e));
  const auto last_of = [&](int s, const UnitSet& units) {
    int last = p - 1;
    while (last > s && !units.intersects(stages[last])) --last;
    return last;
  };
  for (int s = 0; s < p; ++s)
    for (int u : stages[s].members())
      for (const Product& product : products_[u]) {
        const int last_reader = last_of(s, product.readers);
        const int last_giver = last_of(s, product.givers);
        int has_value = s;  // the stage that sends it on
        int earlier = s;    // the stage that the partial sum goes to
        for (int to = s + 1; to <= last_reader; ++to) {
          if (relays || product.readers.intersects(stages[to])) {
            forward[has_value * p + to] += product.bytes;
            if (relays) has_value = to;
          }
          const bool hands_on = relays && to < last_giver && has_backward(chain[to]);
          if (hands_on || product.givers.intersects(stages[to])) {
            backward[to * p + earlier] += product.bytes;
            earlier = to;
          }
        }
      }
}

}  // namespace stagecraft
