// A graph made ready for the search: units, down-sets, the cost of every possible stage; and splits
// made from chains of them.
//
// Immutable after construction; the graph must outlive it. Any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/solver/chain_search.h"
#include "partitioner/solver/stage_costs.h"

namespace stagecraft {

// The devices, one a stage, each with its cap as its memory, and how the step runs on them.
struct SplitTarget {
  std::vector<Device> devices;
  std::string schedule;
  std::vector<int64_t> micro_batch_sizes;

  int stages() const { return static_cast<int>(devices.size()); }
};

struct Split {
  Placement placement;
  int64_t bottleneck = 0;    // ns
  int64_t proven_bound = 0;  // ns, see Solution
  Schedule schedule;
  std::vector<RankMemory> memory;

  // Largest prediction above a device's memory; not positive when the split fits.
  int64_t excess(const SplitTarget& target) const;
};

class SplitProblem {
 public:
  // Throws ResourceError when there are too many units or down-sets.
  SplitProblem(const BlockGraph& graph, const ClusterCosts& costs);

  const UnitOrder& order() const { return order_; }
  const StageCosts& stage_costs() const { return stage_costs_; }
  int64_t down_set_count() const { return static_cast<int64_t>(sets_.size()); }
  int searched_units() const { return searched_units_; }

  // The split with the smallest bottleneck that the memory model lets onto the devices. Behind the
  // limits of the search (docs/search.md) a split that fits, with what is proven. Nothing when none
  // was found: within the limits there is none then, and `leanest` says whether there can be any.
  std::optional<Split> fastest(const SplitTarget& target) const;
  // The split whose fullest device, measured against its memory, is least full: fits or not.
  // `proven`: no split needs less. Never empty when there are as many units as stages.
  struct Leanest {
    Split split;
    bool proven = false;
  };
  Leanest leanest(const SplitTarget& target) const;

 private:
  ChainSearch chains(const SplitTarget& target) const;
  // The bound of the chain's excess with what depends on the whole chain added.
  int64_t excess_bound(const SplitTarget& target, const ChainSearch::Chain& chain) const;
  Split make_split(const SplitTarget& target, const ChainSearch::Chain& chain) const;
  // Contexts of the target's stages.
  std::vector<StageContext> contexts(const SplitTarget& target) const;
  std::optional<Split> with_margin(const SplitTarget& target, int64_t margin) const;

  const BlockGraph& graph_;
  const ClusterCosts costs_;
  UnitOrder order_;
  StageCosts stage_costs_;
  int searched_units_ = 0;
  std::vector<UnitSet> sets_;
  std::vector<std::vector<ChainEdge>> edges_;
  std::vector<std::vector<StageCost>> edge_costs_;
};

}  // namespace stagecraft
