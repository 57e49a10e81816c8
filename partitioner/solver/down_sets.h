// The partial order of units and its down-sets, the stage prefixes that the search chooses from.
//
// Plain values and pure functions, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/solver/units.h"

namespace stagecraft {

inline constexpr int kMaxUnits = 256;

// A set of units.
struct UnitSet {
  std::array<uint64_t, kMaxUnits / 64> words{};

  void add(int unit) { words[unit / 64] |= uint64_t{1} << (unit % 64); }
  void remove(int unit) { words[unit / 64] &= ~(uint64_t{1} << (unit % 64)); }
  bool has(int unit) const { return (words[unit / 64] >> (unit % 64) & 1) != 0; }
  bool is_subset_of(const UnitSet& other) const;
  bool intersects(const UnitSet& other) const;
  UnitSet minus(const UnitSet& other) const;
  void add_all(const UnitSet& other);
  std::vector<int> members() const;  // ascending
  auto operator<=>(const UnitSet&) const = default;
};

// Pairs (before, after) of blocks whose stages must not decrease: edges of the graph, and
// neighbouring gradient consumers of a value (the fold goes along the schedule). Replicated blocks
// and blocks without a path to the loss are left out.
std::vector<std::pair<int, int>> stage_order_pairs(const BlockGraph& graph,
                                                   const std::vector<int>& replicated);

struct UnitOrder {
  Units units;
  std::vector<int> unit_of_block;  // -1: replicated
  std::vector<UnitSet> before;     // by unit: all that must be in an earlier or the same stage
};
// Throws ResourceError for more than kMaxUnits units.
UnitOrder order_units(const BlockGraph& graph, const Units& units);

// All down-sets of the units, by size, then members. The first is empty, the last full. Throws
// ResourceError when there are more than `limit`.
std::vector<UnitSet> down_sets(const UnitOrder& order, int64_t limit);

}  // namespace stagecraft
