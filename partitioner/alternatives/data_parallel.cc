#include "partitioner/alternatives/data_parallel.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "partitioner/alternatives/buckets.h"
#include "partitioner/alternatives/one_device.h"
#include "partitioner/alternatives/ring.h"

namespace stagecraft {
namespace {

// One bucket is being filled while the one before it travels.
constexpr int64_t kBucketsInFlight = 2;

using Passes = std::vector<std::vector<ReadyGradients>>;  // by micro-batch

// The same work on one device of every kind.
class EveryDevice {
 public:
  explicit EveryDevice(const TrainingJob& job) : job_(job) {
    all_.devices = static_cast<int>(std::min<int64_t>(job.devices(), job.batch));
    all_.samples = job.share(job.devices());
    for (int r = 0; r < all_.devices; ++r) {
      const int kind = job.costs.kind_of_rank(r);
      if (!kinds_.contains(kind)) kinds_.emplace(kind, on_one_device(job, r, all_.samples));
    }
  }

  Ring ring() const {
    std::vector<int> ranks(all_.devices);
    std::iota(ranks.begin(), ranks.end(), 0);
    return {job_.cluster, ranks};
  }
  Nanos computing() const {
    Nanos slowest;
    for (const auto& [kind, one] : kinds_) slowest = std::max(slowest, one.step.makespan);
    return slowest;
  }
  // When the gradients of each micro-batch are there, on the slowest device.
  Passes gradients() const {
    std::vector<int> blocks(job_.graph.blocks.size());
    std::iota(blocks.begin(), blocks.end(), 0);
    Passes passes(kinds_.begin()->second.micro_batch_sizes.size());
    for (size_t j = 0; j < passes.size(); ++j) {
      std::vector<std::vector<ReadyGradients>> of_kinds;
      for (const auto& [kind, one] : kinds_) {
        of_kinds.push_back(gradients_of(job_.graph, job_.costs.of_kind(kind),
                                        {.blocks = blocks,
                                         .start = backward_start(one, static_cast<int>(j)),
                                         .samples = one.micro_batch_sizes[j]}));
      }
      passes[j] = latest(of_kinds);
    }
    return passes;
  }
  // `change(memory)` turns what one device alone holds into what it holds here.
  template <typename Change>
  DataParallel result(const Change& change, Nanos exposed) const {
    DataParallel result = all_;
    Bytes worst;
    for (int r = 0; r < all_.devices; ++r) {
      const Device& device = job_.cluster.devices[r];
      RankMemory memory = kinds_.at(job_.costs.kind_of_rank(r)).memory;
      memory[MemoryLine::kCommBuffers] += ring_buffers(device, all_.devices);
      change(memory);
      const Bytes excess = memory.total() - device.memory;
      if (r > 0 && excess <= worst) continue;
      worst = excess;
      result.rank = r;
      result.memory = memory;
    }
    result.exposed = exposed;
    result.step = computing() + exposed;
    return result;
  }
  int devices() const { return all_.devices; }

 private:
  static Nanos backward_start(const OneDevice& one, int micro_batch) {
    const auto& actions = one.schedule.ranks.at(0);
    for (size_t i = 0; i < actions.size(); ++i) {
      if (actions[i].kind == ActionKind::kBackward && actions[i].micro_batch == micro_batch) {
        return one.step.actions[i].start;
      }
    }
    return one.step.makespan;  // nothing is trained
  }

  const TrainingJob& job_;
  DataParallel all_;  // devices and samples
  std::map<int, OneDevice> kinds_;
};

Nanos after(Nanos end, Nanos computing) { return std::max(end - computing, Nanos{}); }

}  // namespace

DataParallel data_parallel(const TrainingJob& job) {
  const EveryDevice every(job);
  const Ring ring = every.ring();
  const Nanos end = end_of_buckets({every.gradients().back()},
                                   [&](Bytes bytes) { return ring.all_reduce(bytes); });
  return every.result([](RankMemory&) {}, after(end, every.computing()));
}

DataParallel sharded_optimizer(const TrainingJob& job) {
  const EveryDevice every(job);
  const Ring ring = every.ring();
  const Nanos end =
      end_of_buckets(every.gradients(), [&](Bytes bytes) { return ring.reduce_scatter(bytes); });
  const bool mixed = job.costs.precision() != "fp32";
  Bytes trained;
  for (const Block& block : job.graph.blocks) {
    if (block.trainable && block.reaches_loss) {
      trained += Bytes{block.parameters() * (mixed ? 2 : 4)};
    }
  }
  const int64_t n = every.devices();
  const auto shard = [n](RankMemory& memory) {
    for (const MemoryLine line :
         {MemoryLine::kGradients, MemoryLine::kMasterWeights, MemoryLine::kOptimizer}) {
      memory[line] = {(memory[line].count + n - 1) / n};
    }
    if (n > 1) memory[MemoryLine::kGradients] += kBucketBytes * kBucketsInFlight;
  };
  return every.result(shard, after(end, every.computing()) + ring.all_gather(trained));
}

}  // namespace stagecraft
