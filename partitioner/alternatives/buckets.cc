#include "partitioner/alternatives/buckets.h"

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {
namespace {

constexpr int64_t kGradientSize = 4;  // fp32

}  // namespace

std::vector<ReadyGradients> gradients_of(const BlockGraph& graph, const CostTable& costs,
                                         const BackwardPass& pass) {
  std::vector<ReadyGradients> ready;
  int64_t done = 0;  // of the backward pass, for the table's micro-batch
  for (auto b = pass.blocks.rbegin(); b != pass.blocks.rend(); ++b) {
    const Block& block = graph.blocks[*b];
    if (!block.reaches_loss || block.state == BlockState::kF) continue;
    const BlockCost& cost = costs.blocks.at(block.name);
    done += cost.backward_input.median.count + cost.backward_weight.median.count;
    if (!block.trainable || block.parameters() == 0) continue;
    ready.push_back({.at = pass.start + Nanos{scale_to(done, pass.samples, costs.micro_batch)},
                     .bytes = {block.parameters() * kGradientSize}});
  }
  return ready;
}

std::vector<ReadyGradients> latest(const std::vector<std::vector<ReadyGradients>>& of_devices) {
  check(!of_devices.empty(), "gradients of no device");
  std::vector<ReadyGradients> merged = of_devices.front();
  for (const auto& ready : of_devices) {
    check(ready.size() == merged.size(), "devices have different gradients");
    for (size_t i = 0; i < merged.size(); ++i) {
      check(ready[i].bytes == merged[i].bytes, "devices have different gradients");
      merged[i].at = std::max(merged[i].at, ready[i].at);
    }
  }
  return merged;
}

Nanos end_of_buckets(const std::vector<std::vector<ReadyGradients>>& passes,
                     const std::function<Nanos(Bytes)>& duration) {
  Nanos free;
  const auto send = [&](Nanos ready, Bytes bytes) {
    if (bytes.count > 0) free = std::max(free, ready) + duration(bytes);
  };
  for (const auto& pass : passes) {
    Bytes filled;
    Nanos ready;
    for (const ReadyGradients& gradients : pass) {
      ready = std::max(ready, gradients.at);
      filled += gradients.bytes;
      for (; filled >= kBucketBytes; filled -= kBucketBytes) send(ready, kBucketBytes);
    }
    send(ready, filled);
  }
  return free;
}

}  // namespace stagecraft
