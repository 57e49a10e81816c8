// Gradients that travel while the backward pass still runs, bucket by bucket (Li et al., "PyTorch
// Distributed: Experiences on accelerating data parallel training", VLDB 2020).
//
// Plain values and pure functions, any thread.
#pragma once

#include <functional>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/cost/cluster_costs.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

// torch.nn.parallel.DistributedDataParallel's `bucket_cap_mb`, 25 unless given.
inline constexpr Bytes kBucketBytes{25 * 1024 * 1024};

// Bytes of gradients that are complete at a time.
struct ReadyGradients {
  Nanos at;
  Bytes bytes;
  bool operator==(const ReadyGradients&) const = default;
};

// The gradients (fp32) of one backward pass that starts at `start`, over `blocks` (ascending), last
// block first: those of a trained block are complete when its backward is over.
struct BackwardPass {
  std::vector<int> blocks;
  Nanos start;
  int64_t samples = 1;
};
std::vector<ReadyGradients> gradients_of(const BlockGraph& graph, const CostTable& costs,
                                         const BackwardPass& pass);

// Entry by entry the later time: a sum waits for the slowest. All lists have the same bytes.
std::vector<ReadyGradients> latest(const std::vector<std::vector<ReadyGradients>>& of_devices);

// When the last bucket is through. Buckets are filled in order; one starts when its last byte is
// ready and the one before it is through, and takes `duration(bytes)`. A bucket does not mix
// passes: what is left of a pass is sent with it.
Nanos end_of_buckets(const std::vector<std::vector<ReadyGradients>>& passes,
                     const std::function<Nanos(Bytes)>& duration);

}  // namespace stagecraft
