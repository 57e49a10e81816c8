#include "partitioner/alternatives/replicas.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "partitioner/alternatives/buckets.h"
#include "partitioner/alternatives/ring.h"
#include "partitioner/base/error.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {
namespace {

// One replica on its devices.
struct Replica {
  std::vector<int> ranks;  // of the cluster
  ClusterCosts costs;
  Cluster cluster;
  std::vector<RankMemory> memory;
  SimulatedStep step;
};

// When the stage's last backward pass starts; nothing for a stage that has none.
std::optional<Nanos> last_backward(const Schedule& schedule, const Replica& replica, int stage) {
  std::optional<Nanos> start;
  size_t timed = 0;
  for (const auto& actions : schedule.ranks) {
    for (const Action& action : actions) {
      const Nanos at = replica.step.actions[timed++].start;
      const bool is_backward =
          action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight;
      if (is_backward && action.stage == stage) start = std::max(at, start.value_or(at));
    }
  }
  return start;
}

}  // namespace

ReplicatedPipeline replicate(const TrainingJob& job, const Placement& placement, int replicas,
                             const std::string& schedule_name) {
  const int stages = placement.stages();
  check(replicas >= 1 && replicas * stages <= job.devices(), "more replicas than devices");
  ReplicatedPipeline result{.replicas = replicas,
                            .stages = stages,
                            .samples = job.share(replicas),
                            .rank = 0,
                            .memory = {},
                            .step = {},
                            .exposed = {}};
  const std::vector<int64_t> sizes = micro_batch_sizes(result.samples, job.micro_batch);
  const Schedule schedule = make_schedule(schedule_name, job.graph, placement, sizes);
  std::vector<Replica> all;
  Nanos computing;
  Bytes worst;
  for (int r = 0; r < replicas; ++r) {
    std::vector<int> ranks(stages);
    std::iota(ranks.begin(), ranks.end(), r * stages);
    Replica replica{.ranks = ranks,
                    .costs = job.costs.select(ranks),
                    .cluster = job.cluster.select(ranks),
                    .memory = {},
                    .step = {}};
    replica.memory = predict_memory(job.graph, placement, replica.costs, replica.cluster.devices,
                                    schedule, sizes);
    replica.step = simulate(job.graph, placement, replica.costs, replica.cluster, schedule, sizes);
    computing = std::max(computing, replica.step.makespan);
    for (int i = 0; i < stages; ++i) {
      const Device& device = replica.cluster.devices[i];
      RankMemory memory = replica.memory[i];
      memory[MemoryLine::kCommBuffers] += ring_buffers(device, replicas);
      const Bytes excess = memory.total() - device.memory;
      if ((r > 0 || i > 0) && excess <= worst) continue;
      worst = excess;
      result.rank = ranks[i];
      result.memory = memory;
    }
    all.push_back(std::move(replica));
  }
  Nanos end = computing;
  for (int s = 0; s < stages; ++s) {
    const int host = placement.rank_of_stage[s];
    std::vector<int> members;
    std::vector<std::vector<ReadyGradients>> ready;
    for (const Replica& replica : all) {
      members.push_back(replica.ranks[host]);
      const std::optional<Nanos> start = last_backward(schedule, replica, s);
      if (!start) continue;
      ready.push_back(gradients_of(job.graph, replica.costs.of_rank(host),
                                   {.blocks = placement.blocks_owned_by(job.graph, s),
                                    .start = *start,
                                    .samples = sizes.back()}));
    }
    if (ready.empty()) continue;
    const Ring ring(job.cluster, members);
    end = std::max(
        end, end_of_buckets({latest(ready)}, [&](Bytes bytes) { return ring.all_reduce(bytes); }));
  }
  result.step = end;
  result.exposed = end - computing;
  return result;
}

std::vector<int> stages_of_replicas(int devices) {
  std::vector<int> stages;
  for (int p = 2; p < devices; ++p) {
    if (devices % p == 0) stages.push_back(p);
  }
  return stages;
}

}  // namespace stagecraft
