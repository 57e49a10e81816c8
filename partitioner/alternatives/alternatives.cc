#include "partitioner/alternatives/alternatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "partitioner/alternatives/data_parallel.h"
#include "partitioner/alternatives/known_trainers.h"
#include "partitioner/alternatives/one_device.h"
#include "partitioner/alternatives/replicas.h"
#include "partitioner/alternatives/ring.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/baselines/baselines.h"
#include "partitioner/solver/solver.h"

namespace stagecraft {
namespace {

constexpr int64_t kNodesOfReplica = 500'000;  // of the search for one pipeline

std::string micro_batches_text(int64_t samples, int64_t micro_batch) {
  const auto sizes = micro_batch_sizes(samples, micro_batch);
  return sizes.size() == 1
             ? counted(samples, "sample") + " at once"
             : fmt::format("{} as {} micro-batches", counted(samples, "sample"), sizes.size());
}

class Finder {
 public:
  Finder(const TrainingJob& job, const OtherParameters& other, std::string schedule,
         const SearchLimits& limits)
      : job_(job),
        other_(other),
        schedule_(std::move(schedule)),
        limits_(limits),
        frozen_(job.costs.precision() == "fp32" ? "frozen weights held once"
                                                : "frozen weights held once and in half") {}

  std::vector<Alternative> find() {
    one_device();
    if (job_.devices() == 1) return found_;
    data_parallel();
    for (const int stages : stages_of_replicas(job_.devices())) {
      const int replicas = job_.devices() / stages;
      if (stages <= kMaxReplicaStages && replicas <= job_.batch) pipelines(replicas, stages);
    }
    return found_;
  }

 private:
  struct Figures {
    int rank = 0;
    Bytes memory;
    Nanos step, exposed;
  };
  void add(std::string name, std::string how, const Figures& figures) {
    found_.push_back({.name = std::move(name),
                      .how = std::move(how),
                      .memory = figures.memory,
                      .device_memory = job_.cluster.devices.at(figures.rank).memory,
                      .step = figures.step,
                      .exposed = figures.exposed});
  }

  void one_device() {
    const KnownTrainer known = known_trainer(job_, other_);
    add("one device, as known trainers do it",
        fmt::format("fp32 parameters, gradients of frozen ones as well, VAE and text encoder "
                    "resident; {} at once",
                    counted(known.samples, "sample")),
        {known.rank, known.memory, known.step, {}});
    const int rank = largest_device(job_.cluster);
    const OneDevice one = on_one_device(job_, rank, job_.batch);
    add("one device, done right",
        fmt::format("{}, nothing computed or kept for them; {}", frozen_,
                    micro_batches_text(job_.batch, job_.micro_batch)),
        {rank, one.memory.total(), one.step.makespan, {}});
  }

  // What a batch_size is to Lightning: every device's.
  void whole_batch_on_each() {
    const int64_t samples = job_.batch * job_.devices();
    const KnownTrainer known = known_data_parallel(job_, other_, job_.devices(), job_.batch);
    add(fmt::format("the same, a batch of {} on each device", job_.batch),
        fmt::format("as Lightning's batch_size has it; a step trains {}",
                    counted(samples, "sample")),
        {known.rank, known.memory, known.step, known.exposed});
    found_.back().other_batch = samples;
  }

  void data_parallel() {
    const int64_t share = job_.share(job_.devices());
    const int devices = static_cast<int>(std::min<int64_t>(job_.devices(), job_.batch));
    const KnownTrainer known = known_data_parallel(job_, other_, devices, share);
    add("data parallel, as known trainers do it",
        fmt::format("the same and the reducer's buckets; {} on each device",
                    counted(known.samples, "sample")),
        {known.rank, known.memory, known.step, known.exposed});
    if (job_.batch > share) whole_batch_on_each();
    const DataParallel right = stagecraft::data_parallel(job_);
    add("data parallel, done right",
        fmt::format("{}, gradients are the buckets; {} on each of {} devices", frozen_,
                    micro_batches_text(right.samples, job_.micro_batch), right.devices),
        {right.rank, right.memory.total(), right.step, right.exposed});
    const DataParallel sharded = sharded_optimizer(job_);
    add("data parallel, sharded optimizer (ZeRO-2)",
        fmt::format("each of {} devices keeps 1/{} of gradients, master weights and moments",
                    sharded.devices, sharded.devices),
        {sharded.rank, sharded.memory.total(), sharded.step, sharded.exposed});
  }

  Placement split(int replicas, int stages) {
    std::vector<int> ranks(stages);
    std::iota(ranks.begin(), ranks.end(), 0);
    const Cluster cluster = job_.cluster.select(ranks);
    // Equal devices have one table, made once.
    std::optional<ClusterCosts> of_ranks;
    std::optional<StageTable> table;
    if (job_.costs.kinds() > 1) {
      table.emplace(job_.graph, of_ranks.emplace(job_.costs.select(ranks)));
    } else if (!equal_devices_) {
      equal_devices_.emplace(job_.graph, equal_costs_.emplace(job_.costs.of_kind(0)));
    }
    const StageTable& used = table ? *table : *equal_devices_;
    // Room for what the sum over the replicas needs on top of a pipeline: a ring's two neighbours.
    std::vector<Bytes> caps;
    for (const Device& device : cluster.devices)
      caps.push_back(device.memory - ring_buffers(device, replicas));
    if (limits_.is_over()) return branch_baseline(job_.graph, used.costs(), stages).placement;
    const std::optional<Solution> solution = try_solve(used, cluster,
                                                       {.stages = stages,
                                                        .schedule = schedule_,
                                                        .memory_caps = caps,
                                                        .batch = job_.share(replicas),
                                                        .micro_batch = job_.micro_batch,
                                                        .limits = limits_.part(kNodesOfReplica)});
    return solution ? solution->placement
                    : branch_baseline(job_.graph, used.costs(), stages).placement;
  }

  void pipelines(int replicas, int stages) {
    const Placement placement = split(replicas, stages);
    const ReplicatedPipeline found = replicate(job_, placement, replicas, schedule_);
    add(fmt::format("{} replicas of {} stages", replicas, stages),
        fmt::format("{} on each replica, a stage's gradients summed over the replicas",
                    micro_batches_text(found.samples, job_.micro_batch)),
        {found.rank, found.memory.total(), found.step, found.exposed});
  }

  const TrainingJob& job_;
  const OtherParameters& other_;
  std::string schedule_;
  SearchLimits limits_;
  std::string frozen_;
  std::optional<ClusterCosts> equal_costs_;
  std::optional<StageTable> equal_devices_;
  std::vector<Alternative> found_;
};

}  // namespace

std::vector<Alternative> find_alternatives(const TrainingJob& job, const OtherParameters& other,
                                           const std::string& schedule,
                                           const SearchLimits& limits) {
  return Finder(job, other, schedule, limits).find();
}

}  // namespace stagecraft
