#include "partitioner/solver/stage_costs.h"

#include <algorithm>
#include <map>

#include "partitioner/base/error.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/solver/step_bound.h"

namespace stagecraft {
namespace {

int64_t backward_time(const BlockCost& cost) {
  return cost.backward_input.median.count + cost.backward_weight.median.count;
}

}  // namespace

StageCosts::StageCosts(const BlockGraph& graph, const UnitOrder& order, const CostTable& costs)
    : graph_(graph), order_(order), costs_(costs), facts_(graph, costs, order.unit_of_block) {
  for (const std::vector<int>& blocks : order.units.blocks) {
    int64_t forward = 0, backward = 0;
    bool has_backward = false;
    for (int b : blocks) {
      if (!graph.blocks[b].reaches_loss) continue;
      forward += facts_.costs[b]->forward.median.count;
      if (graph.blocks[b].state == BlockState::kF) continue;
      backward += backward_time(*facts_.costs[b]);
      has_backward = true;
    }
    unit_forward_.push_back(forward);
    unit_backward_.push_back(backward);
    unit_has_backward_.push_back(has_backward);
  }
  for (int b = 0; b < static_cast<int>(graph.blocks.size()); ++b) {
    const Block& block = graph.blocks[b];
    if (!block.reaches_loss || block.state == BlockState::kF || order.unit_of_block[b] < 0)
      continue;
    const BlockCost& cost = *facts_.costs[b];
    const int64_t bytes =
        cost.saved_internal.count + (cost.keeps_output ? facts_.value_bytes[block.output] : 0);
    if (bytes > 0)
      reruns_.push_back({.block = b, .time = cost.forward.median.count, .bytes = bytes});
  }
  std::ranges::stable_sort(reruns_, [](const Rerun& a, const Rerun& b) {
    return static_cast<double>(a.bytes) * static_cast<double>(b.time) >
           static_cast<double>(b.bytes) * static_cast<double>(a.time);
  });
  // Replicated blocks may feed replicated ones: last first, so that a consumer's readers are known.
  replicated_for_.resize(order.units.replicated.size());
  std::map<int, int> index;
  for (int i = static_cast<int>(order.units.replicated.size()) - 1; i >= 0; --i) {
    const int block = order.units.replicated[i];
    index[block] = i;
    for (int consumer : graph.values[graph.blocks[block].output].consumers) {
      if (!graph.blocks[consumer].reaches_loss) continue;
      if (order.unit_of_block[consumer] >= 0) {
        replicated_for_[i].add(order.unit_of_block[consumer]);
      } else {
        const UnitSet& readers = replicated_for_[index.at(consumer)];
        replicated_for_[i].add_all(readers);
      }
    }
  }
}

std::vector<int> StageCosts::blocks_run(const UnitSet& units) const {
  std::vector<int> blocks;
  for (int u : units.members())
    for (int b : order_.units.blocks[u])
      if (graph_.blocks[b].reaches_loss) blocks.push_back(b);
  for (size_t i = 0; i < replicated_for_.size(); ++i)
    if (replicated_for_[i].intersects(units)) blocks.push_back(order_.units.replicated[i]);
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

int64_t StageCosts::fixed_bytes(int block) const {
  const Block& b = graph_.blocks[block];
  const bool mixed = costs_.precision != "fp32";
  int64_t per_parameter = mixed ? 2 : 4;
  if (b.trainable) per_parameter += mixed ? 4 : 0;            // master weights
  if (b.trainable && b.reaches_loss) per_parameter += 4 + 8;  // gradients, Adam's moments
  return b.parameters() * per_parameter;
}

int64_t StageCosts::footprint(int block) const {
  const BlockCost& cost = *facts_.costs[block];
  int64_t sum = fixed_bytes(block) + cost.saved_internal.count;
  for (size_t i = 0; i < cost.keeps_input.size(); ++i)
    if (cost.keeps_input[i]) sum += facts_.value_bytes[graph_.blocks[block].inputs[i]];
  if (cost.keeps_output) sum += facts_.value_bytes[graph_.blocks[block].output];
  return sum;
}

StageCost StageCosts::of(const UnitSet& units, StageReplay& replay,
                         const std::vector<bool>* recompute) const {
  const std::vector<int> blocks = blocks_run(units);
  replay.load(blocks, recompute);
  StageCost cost{.in_flight = replay.kept(), .channels = replay.channels()};
  cost.forward_peak = replay.forward_peak();
  cost.backward_peak = replay.backward_peak();
  for (int b : blocks)
    if (facts_.is_replicated[b]) {
      cost.forward += facts_.costs[b]->forward.median.count;
      cost.fixed += fixed_bytes(b);
    }
  for (int u : units.members()) {
    cost.forward += unit_forward_[u];
    cost.backward += unit_backward_[u];
    cost.has_backward = cost.has_backward || unit_has_backward_[u];
    for (int b : order_.units.blocks[u]) cost.fixed += fixed_bytes(b);
  }
  return cost;
}

std::vector<StageCosts::Rerun> StageCosts::reruns(const UnitSet& units) const {
  std::vector<Rerun> result;
  for (const Rerun& rerun : reruns_)
    if (units.has(order_.unit_of_block[rerun.block])) result.push_back(rerun);
  return result;
}

StageContext stage_context(const std::string& schedule, int stage, int stages,
                           const std::vector<int64_t>& micro_batch_sizes, int64_t micro_batch) {
  const int count = static_cast<int>(micro_batch_sizes.size());
  const auto in_flight = static_cast<int>(micro_batches_in_flight(schedule, stage, stages, count));
  StageContext context{.forward = {}, .backward = {}, .micro_batch = micro_batch};
  int64_t before = 0;  // the forwards up to the first backward: the last micro-batch may be smaller
  for (int j = 0; j < in_flight; ++j) {
    if (j + 2 >= in_flight)
      context.forward.push_back({.others = before, .running = micro_batch_sizes[j]});
    before += micro_batch_sizes[j];
  }
  context.backward = {.others = before - micro_batch_sizes[0], .running = micro_batch_sizes[0]};
  return context;
}

int64_t StageContext::most_in_flight() const {
  int64_t most = backward.others + backward.running;
  for (const Moment& moment : forward) most = std::max(most, moment.others + moment.running);
  return most;
}

double most_freed(const StageCosts::Rerun& rerun, const StageContext& context,
                  const Device& device) {
  const double worth = (1.0 + device.slack_fraction) *
                       static_cast<double>(context.most_in_flight()) /
                       static_cast<double>(context.micro_batch);
  return worth * static_cast<double>(rerun.bytes) + 4;
}

int64_t memory_bound(const StageCost& cost, const StageContext& context, const Device& device) {
  const auto at = [&](const StageContext::Moment& moment, int64_t peak) {
    return (cost.in_flight * moment.others + peak * moment.running) / context.micro_batch;
  };
  int64_t dynamic = at(context.backward, cost.backward_peak);
  for (const StageContext::Moment& moment : context.forward)
    dynamic = std::max(dynamic, at(moment, cost.forward_peak));
  const auto slack = static_cast<int64_t>(device.slack_fraction * static_cast<double>(dynamic));
  return device.base.count + cost.fixed + dynamic + slack +
         device.comm_buffer_per_peer.count * cost.channels;
}

}  // namespace stagecraft
