#include "partitioner/solver/down_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "partitioner/base/error.h"

namespace stagecraft {

bool UnitSet::is_subset_of(const UnitSet& other) const {
  for (size_t w = 0; w < words.size(); ++w)
    if ((words[w] & ~other.words[w]) != 0) return false;
  return true;
}

bool UnitSet::intersects(const UnitSet& other) const {
  for (size_t w = 0; w < words.size(); ++w)
    if ((words[w] & other.words[w]) != 0) return true;
  return false;
}

UnitSet UnitSet::minus(const UnitSet& other) const {
  UnitSet result;
  for (size_t w = 0; w < words.size(); ++w) result.words[w] = words[w] & ~other.words[w];
  return result;
}

void UnitSet::add_all(const UnitSet& other) {
  for (size_t w = 0; w < words.size(); ++w) words[w] |= other.words[w];
}

std::vector<int> UnitSet::members() const {
  std::vector<int> result;
  for (size_t w = 0; w < words.size(); ++w)
    for (uint64_t rest = words[w]; rest != 0; rest &= rest - 1)
      result.push_back(static_cast<int>(w * 64) + std::countr_zero(rest));
  return result;
}

std::vector<std::pair<int, int>> stage_order_pairs(const BlockGraph& graph,
                                                   const std::vector<int>& replicated) {
  std::vector<bool> left_out(graph.blocks.size(), false);
  for (int b : replicated) left_out[b] = true;
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    if (!graph.blocks[b].reaches_loss) left_out[b] = true;
  std::vector<std::pair<int, int>> pairs;
  const auto add = [&](int before, int after) {
    if (!left_out[before] && !left_out[after]) pairs.emplace_back(before, after);
  };
  for (size_t b = 0; b < graph.blocks.size(); ++b)
    for (int value : graph.blocks[b].inputs)
      if (graph.values[value].producer >= 0) add(graph.values[value].producer, static_cast<int>(b));
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const std::vector<int> consumers = graph.gradient_consumers(static_cast<int>(v));
    for (size_t i = 1; i < consumers.size(); ++i) add(consumers[i - 1], consumers[i]);
  }
  return pairs;
}

UnitOrder order_units(const BlockGraph& graph, const Units& units) {
  const int count = static_cast<int>(units.blocks.size());
  if (count > kMaxUnits)
    throw ResourceError(
        fmt::format("the graph has {} units, the search takes at most {}", count, kMaxUnits));
  UnitOrder order{.units = units,
                  .unit_of_block = std::vector<int>(graph.blocks.size(), -1),
                  .before = std::vector<UnitSet>(count)};
  for (int u = 0; u < count; ++u)
    for (int b : units.blocks[u]) order.unit_of_block[b] = u;
  std::vector<std::set<int>> before(count);
  for (auto [first, second] : stage_order_pairs(graph, units.replicated)) {
    const int a = order.unit_of_block[first], b = order.unit_of_block[second];
    if (a == b) continue;
    check(a < b, "units are not in topological order");
    before[b].insert(a);
  }
  for (int u = 0; u < count; ++u) {
    UnitSet& closure = order.before[u];
    for (int p : before[u]) {
      closure.add(p);
      closure.add_all(order.before[p]);
    }
  }
  return order;
}

std::vector<UnitSet> down_sets(const UnitOrder& order, int64_t limit) {
  const int units = static_cast<int>(order.units.blocks.size());
  std::vector<UnitSet> all;
  std::set<UnitSet> layer{UnitSet{}};  // of one size
  while (!layer.empty()) {
    std::set<UnitSet> next;
    for (const UnitSet& set : layer) {
      if (static_cast<int64_t>(all.size()) == limit)
        throw ResourceError(fmt::format(
            "the graph has more than {} down-sets of its units, too many to search", limit));
      all.push_back(set);
      for (int u = 0; u < units; ++u) {
        if (set.has(u) || !order.before[u].is_subset_of(set)) continue;
        UnitSet larger = set;
        larger.add(u);
        next.insert(larger);
      }
    }
    layer = std::move(next);
  }
  return all;
}

}  // namespace stagecraft
