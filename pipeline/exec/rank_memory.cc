#include "pipeline/exec/rank_memory.h"

#include <ATen/core/Tensor.h>

namespace stagecraft {
namespace {

Bytes size_of_tensor(const at::Tensor& tensor) { return {static_cast<int64_t>(tensor.nbytes())}; }

}  // namespace

RankMemory memory_at_peak(const RankParameters& parameters, const PeakMemory& moment, Bytes peak) {
  RankMemory memory;
  for (const ParameterSlot& slot : parameters.slots()) {
    memory[MemoryLine::kWeights] += size_of_tensor(slot.weight);
    if (!slot.trained) continue;
    memory[MemoryLine::kGradients] += size_of_tensor(slot.gradient);
    memory[MemoryLine::kOptimizer] +=
        size_of_tensor(slot.exp_avg) + size_of_tensor(slot.exp_avg_sq);
  }
  memory[MemoryLine::kRecompute] = moment.recompute;
  memory[MemoryLine::kBoundary] = moment.boundary;
  memory[MemoryLine::kWorkspace] = moment.workspace;
  memory[MemoryLine::kActivations] = peak - memory.without_base();
  return memory;
}

}  // namespace stagecraft
