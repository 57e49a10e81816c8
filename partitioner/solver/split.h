// What is searched for, and a candidate made exact: placement, schedule, memory and simulated step.
//
// Plain values and pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {

// One stage on each device; the memory of a device is its cap.
struct SplitTarget {
  Cluster cluster;
  std::string schedule = "1f1b";
  std::vector<int64_t> micro_batch_sizes{};
  bool may_recompute = true;
  bool relays = false;    // Placement::relays
  bool any_order = true;  // stages may take unequal devices in any order; else stage s has rank s
  std::vector<std::pair<int, int>> fixed{};  // block, rank

  int stages() const { return static_cast<int>(cluster.devices.size()); }
};

// Values sent straight, and relayed where there are stages between: `target.relays` does not count.
std::vector<SplitTarget> both_transfers(const SplitTarget& target);

// Stage s is edge `edges[s]` of the table, on rank `ranks[s]`.
struct Chain {
  std::vector<int> edges, ranks;
  auto operator<=>(const Chain&) const = default;
};

struct Split {
  Chain chain;
  Placement placement;
  Schedule schedule;
  std::vector<RankMemory> memory;
  SimulatedStep step;
  bool is_exact = true;  // what runs again takes least time; false: chosen by density

  Bytes peak() const;  // of the fullest rank
  // Largest prediction above a device's memory; not positive when the split fits.
  int64_t excess(const SplitTarget& target) const;
};

// ns that `bytes`, of a micro-batch of the table's size, take from rank to rank for `samples`.
int64_t transfer_between(const StageTable& table, const SplitTarget& target, int from_rank,
                         int to_rank, int64_t bytes, int64_t samples);

// Nothing runs again.
Placement placement_of(const StageTable& table, const SplitTarget& target, const Chain& chain);

// Stage s of `target`, as the memory bound sees it.
StageContext context_of(const StageTable& table, const SplitTarget& target, int stage);

// The chain as it would run. A rank above its device's memory runs blocks again when `target`
// allows it: those that take least time and let it fit, among all subsets of up to kExactReruns
// blocks that keep anything, by bytes per time for more. When it cannot fit, nothing of it is run
// again (`lean`: everything that helps is).
inline constexpr int kExactReruns = 8;
Split make_split(const StageTable& table, const SplitTarget& target, const Chain& chain,
                 bool lean = false);

}  // namespace stagecraft
