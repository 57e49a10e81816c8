// What one stage costs, whatever the other stages are: its time, and a lower bound of its rank's
// memory.
//
// The bound replays one micro-batch through the stage as the memory model does, on top of the
// micro-batches that are in flight beside it, and leaves out what depends on the other stages (how
// long a sent tensor waits, what arrives early). It is never above `predict_memory` (a property
// test holds them together). Immutable after construction; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"
#include "partitioner/solver/down_sets.h"

namespace stagecraft {

struct StageCost {
  int64_t time = 0;       // ns, forward and backward of one micro-batch
  int64_t fixed = 0;      // bytes: weights, gradients, masters, optimizer
  int64_t in_flight = 0;  // bytes one more micro-batch in flight adds
  // Bytes of the running micro-batch at its worst moment, what it keeps included.
  int64_t forward_peak = 0, backward_peak = 0;
  int channels = 0;  // directed pairs of ranks it talks on, at least
};

class StageCosts {
 public:
  // The arguments must outlive the object. Throws InternalError when `costs` lacks a block.
  StageCosts(const BlockGraph& graph, const UnitOrder& order, const CostTable& costs);

  StageCost of(const UnitSet& units) const;
  int64_t time(const UnitSet& units) const;
  // Blocks that a stage of these units runs, ascending: replicated ones it needs included.
  std::vector<int> blocks_run(const UnitSet& units) const;
  // Weights, gradients, master weights and optimizer state of one block.
  int64_t fixed_bytes(int block) const;
  // Directed pairs of ranks that each stage talks on, when every unit is on the given stage.
  std::vector<int> channels(const std::vector<int>& stage_of_unit, int stages) const;
  // Fixed bytes and what the block alone keeps for one micro-batch.
  int64_t footprint(int block) const;

 private:
  const BlockGraph& graph_;
  const UnitOrder& order_;
  const CostTable& costs_;
  std::vector<const BlockCost*> cost_;   // by block
  std::vector<UnitSet> replicated_for_;  // by replicated block: units that need it
  std::vector<int64_t> unit_time_, value_bytes_;
  std::vector<std::vector<int>> gradient_consumers_;  // by value
  // What may have to travel: a producer's unit and its readers' units, and where its gradient is
  // summed.
  struct Route {
    int producer = -1;
    std::vector<int> readers;
    std::vector<int> fold;  // units, the first to add first
  };
  std::vector<Route> routes_;
};

// The moments of a step that can be a stage's worst: how many samples are in flight beside the
// micro-batch that runs, and how many that one has.
struct StageContext {
  struct Moment {
    int64_t others = 0, running = 0;
  };
  std::vector<Moment> forward;
  Moment backward;
  int64_t micro_batch = 1;  // samples that the cost table was made for
};
StageContext stage_context(const std::string& schedule, int stage, int stages,
                           const std::vector<int64_t>& micro_batch_sizes, int64_t micro_batch);
// With the channels of `cost` when none are given.
int64_t memory_bound(const StageCost& cost, const StageContext& context, const Device& device,
                     std::optional<int> channels = std::nullopt);

}  // namespace stagecraft
