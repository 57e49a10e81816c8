#include "partitioner/alternatives/one_device.h"

#include <algorithm>

namespace stagecraft {

OneDevice on_one_device(const TrainingJob& job, int rank, int64_t samples) {
  Placement placement;
  placement.stage_of_block.assign(job.graph.blocks.size(), 0);
  placement.rank_of_stage = {0};
  placement.recompute.assign(job.graph.blocks.size(), false);
  OneDevice one{.micro_batch_sizes = micro_batch_sizes(samples, job.micro_batch),
                .schedule = {},
                .memory = {},
                .step = {}};
  one.schedule = make_schedule("1f1b", job.graph, placement, one.micro_batch_sizes);
  const ClusterCosts costs = job.costs.select({rank});
  const Cluster alone = job.cluster.select({rank});
  one.memory = predict_memory(job.graph, placement, costs, alone.devices, one.schedule,
                              one.micro_batch_sizes)
                   .at(0);
  one.step = simulate(job.graph, placement, costs, alone, one.schedule, one.micro_batch_sizes);
  return one;
}

int largest_device(const Cluster& cluster) {
  const auto largest = std::ranges::max_element(cluster.devices, {}, &Device::memory);
  return static_cast<int>(largest - cluster.devices.begin());
}

}  // namespace stagecraft
