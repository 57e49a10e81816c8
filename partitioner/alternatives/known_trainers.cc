#include "partitioner/alternatives/known_trainers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "partitioner/alternatives/buckets.h"
#include "partitioner/alternatives/one_device.h"
#include "partitioner/alternatives/ring.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {
namespace {

constexpr int64_t kElement = 4;  // fp32 parameters and gradients
// Bytes for each element of the scores when softmax goes back: its result, the gradient of that and
// of its input, all fp32. Mixed precision multiplies by a copy in half precision: no longer in use
// then, but its segment stays reserved.
constexpr int64_t kScoreBytes = 12, kHalfScoreBytes = 2;
// Group norm, proj_in and proj_out of a transformer lie outside its checkpointed part.
constexpr int64_t kTransformerInputs = 3;

bool is_passed(const Block& block) { return block.reaches_loss && block.state != BlockState::kF; }

// Scores of the largest attention of the block, elements of one sample.
int64_t score_elements(const Block& block) {
  int64_t largest = 0;
  for (const Op& op : block.ops) {
    if (op.kind != OpKind::kAttention) continue;
    const int64_t queries = block.tensors[op.inputs[0]].shape.front();
    const int64_t keys = block.tensors[op.inputs[1]].shape.front();
    largest = std::max(largest, op.ints.front() * queries * keys);
  }
  return largest;
}

struct Pass {
  Nanos forward, end;                 // of the forward pass, of the step's computing
  std::vector<ReadyGradients> ready;  // of everything with requires_grad, last block first
};

Pass run_pass(const TrainingJob& job, int kind, int64_t samples) {
  const CostTable& costs = job.costs.of_kind(kind);
  const auto scaled = [&](int64_t nanos) {
    return Nanos{scale_to(nanos, samples, costs.micro_batch)};
  };
  Pass pass;
  int64_t forward = 0, backward = 0;
  for (const Block& block : job.graph.blocks) {
    if (block.reaches_loss) forward += costs.blocks.at(block.name).forward.median.count;
  }
  pass.forward = scaled(forward);
  for (auto block = job.graph.blocks.rbegin(); block != job.graph.blocks.rend(); ++block) {
    if (is_passed(*block)) {
      const BlockCost& cost = costs.blocks.at(block->name);
      const int64_t inputs = cost.backward_input.median.count;
      const bool wasted = !block->trainable && block->parameters() > 0;
      backward += cost.forward.median.count + inputs +
                  (wasted ? inputs : cost.backward_weight.median.count);
    }
    if (block->parameters() == 0) continue;
    pass.ready.push_back({.at = pass.forward + (is_passed(*block) ? scaled(backward) : Nanos{}),
                          .bytes = {block->parameters() * kElement}});
  }
  pass.end = pass.forward + scaled(backward);
  return pass;
}

}  // namespace

KnownTrainersPeak known_trainers_peak(const TrainingJob& job, int rank, int64_t samples) {
  const CostTable& costs = job.costs.of_rank(rank);
  const Device& device = job.cluster.devices.at(static_cast<size_t>(rank));
  KnownTrainersPeak peak{
      .base = device.base, .inputs = {}, .rebuilt = {}, .scores = {}, .slack = {}};
  const int64_t score_bytes = kScoreBytes + (job.costs.precision() == "fp32" ? 0 : kHalfScoreBytes);
  std::set<int> inputs;
  for (const Block& block : job.graph.blocks) {
    if (!is_passed(block)) continue;
    inputs.insert(block.inputs.begin(), block.inputs.end());
    const Bytes output = job.graph.values[block.output].bytes(samples);
    if (block.kind == BlockKind::kTransformer) peak.inputs += output * kTransformerInputs;
    const BlockCost& cost = costs.blocks.at(block.name);
    const Bytes rebuilt =
        output + Bytes{scale_to(cost.saved_internal.count + cost.workspace_backward.count, samples,
                                costs.micro_batch)};
    const Bytes scores{score_elements(block) * samples * score_bytes};
    if (rebuilt + scores > peak.rebuilt + peak.scores) {
      peak.rebuilt = rebuilt;
      peak.scores = scores;
    }
  }
  for (const int value : inputs) peak.inputs += job.graph.values[value].bytes(samples);
  const Bytes dynamic = peak.inputs + peak.rebuilt + peak.scores;
  peak.slack = {std::llround(device.slack_fraction * static_cast<double>(dynamic.count))};
  return peak;
}

KnownTrainer known_trainer(const TrainingJob& job, const OtherParameters& other) {
  KnownTrainer one{.rank = largest_device(job.cluster),
                   .samples = job.batch,
                   .memory = known_trainers_account(job.graph, other).sum().one_device,
                   .step = {},
                   .exposed = {}};
  one.memory += known_trainers_peak(job, one.rank, one.samples).total();
  one.step = run_pass(job, job.costs.kind_of_rank(one.rank), one.samples).end;
  return one;
}

KnownTrainer known_data_parallel(const TrainingJob& job, const OtherParameters& other, int devices,
                                 int64_t samples) {
  KnownTrainer all{.rank = 0, .samples = samples, .memory = {}, .step = {}, .exposed = {}};
  std::vector<int> ranks(devices);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::set<int> kinds;
  Bytes worst;
  for (const int r : ranks) {
    kinds.insert(job.costs.kind_of_rank(r));
    const Device& device = job.cluster.devices[r];
    const Bytes memory = known_trainers_account(job.graph, other).sum().data_parallel +
                         known_trainers_peak(job, r, all.samples).total() +
                         ring_buffers(device, devices);
    if (r > 0 && memory - device.memory <= worst) continue;
    worst = memory - device.memory;
    all.rank = r;
    all.memory = memory;
  }
  std::vector<std::vector<ReadyGradients>> ready;
  Nanos computing;
  for (const int kind : kinds) {
    const Pass pass = run_pass(job, kind, all.samples);
    ready.push_back(pass.ready);
    computing = std::max(computing, pass.end);
  }
  const Ring ring(job.cluster, ranks);
  const Nanos end =
      end_of_buckets({latest(ready)}, [&](Bytes bytes) { return ring.all_reduce(bytes); });
  all.step = std::max(computing, end);
  all.exposed = all.step - computing;
  return all;
}

}  // namespace stagecraft
