// What each rank holds, line by line; the same lines are predicted here and measured by the
// trainer.
//
// Plain values and pure functions, any thread.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {

enum class MemoryLine {
  kProcessBase,    // CPU: resident size of an idle rank; GPU: the CUDA context
  kWeights,        // frozen in half when training is mixed; trainable at compute precision
  kGradients,      // trainable parameters only
  kMasterWeights,  // fp32 copies when training is mixed
  kOptimizer,      // Adam m and v
  kActivations,    // saved for backward and values still needed, in flight at the peak
  kRecompute,      // rebuilt saved tensors of the block that runs again
  kBoundary,       // received and to-be-sent tensors at the peak
  kWorkspace,      // peak scratch and temporaries inside a block
  kCommBuffers,    // NCCL or socket buffers
  kSlack,          // allocator rounding and fragmentation
};
inline constexpr int kMemoryLines = 11;
std::string_view to_string(MemoryLine line);  // "process base", "weights", ...
std::string_view key_of(MemoryLine line);     // "process_base", "weights", ... for YAML and JSON

struct RankMemory {
  std::array<Bytes, kMemoryLines> lines{};
  Bytes& operator[](MemoryLine line) { return lines[static_cast<size_t>(line)]; }
  Bytes operator[](MemoryLine line) const { return lines[static_cast<size_t>(line)]; }
  Bytes total() const;
  Bytes without_base() const;  // what the tracking allocator of a CPU rank sees
  bool operator==(const RankMemory&) const = default;
};
Bytes fullest_of(const std::vector<RankMemory>& ranks);  // the largest total

// Replays every rank's action list, allocating and freeing exactly as the executor does, and
// reports the lines at the moment of the rank's peak.
std::vector<RankMemory> predict_memory(const BlockGraph& graph, const Placement& placement,
                                       const ClusterCosts& costs,
                                       const std::vector<Device>& devices, const Schedule& schedule,
                                       const std::vector<int64_t>& micro_batch_sizes);

// The same, rank by rank, for whoever tries what to run again: a placement's stages and schedule
// stay, only `recompute` changes. The arguments must outlive it.
class MemoryModel {
 public:
  MemoryModel(const BlockGraph& graph, const Placement& placement, const ClusterCosts& costs,
              const std::vector<Device>& devices, const Schedule& schedule,
              const std::vector<int64_t>& micro_batch_sizes);
  RankMemory of_rank(int rank, const Placement& placement) const;

 private:
  const BlockGraph& graph_;
  const ClusterCosts& costs_;
  const std::vector<Device>& devices_;
  const Schedule& schedule_;
  const std::vector<int64_t>& micro_batch_sizes_;
  Flow flow_;
  std::vector<BlockCosts> by_kind_;
};

}  // namespace stagecraft
