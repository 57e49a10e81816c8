#include "partitioner/solver/stage_costs.h"

#include <algorithm>
#include <map>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

int64_t total_time(const BlockCost& cost) {
  return cost.forward.median.count + cost.backward_input.median.count +
         cost.backward_weight.median.count;
}

}  // namespace

StageCosts::StageCosts(const BlockGraph& graph, const UnitOrder& order, const CostTable& costs)
    : graph_(graph), order_(order), costs_(costs) {
  for (const Block& block : graph.blocks) {
    const auto found = costs.blocks.find(block.name);
    check(found != costs.blocks.end(), "cost table: a block of the graph is missing");
    cost_.push_back(&found->second);
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    value_bytes_.push_back(graph.values[v].bytes(costs.micro_batch).count);
    gradient_consumers_.push_back(graph.gradient_consumers(static_cast<int>(v)));
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const int producer = graph.values[v].producer;
    if (producer < 0 || order.unit_of_block[producer] < 0) continue;
    Route route{.producer = order.unit_of_block[producer], .readers = {}, .fold = {}};
    for (int consumer : graph.values[v].consumers)
      if (graph.blocks[consumer].reaches_loss)
        route.readers.push_back(order.unit_of_block[consumer]);
    for (auto c = gradient_consumers_[v].rbegin(); c != gradient_consumers_[v].rend(); ++c)
      route.fold.push_back(order.unit_of_block[*c]);
    routes_.push_back(std::move(route));
  }
  for (const std::vector<int>& blocks : order.units.blocks) {
    int64_t sum = 0;
    for (int b : blocks)
      if (graph.blocks[b].reaches_loss) sum += total_time(*cost_[b]);
    unit_time_.push_back(sum);
  }
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
        for (size_t w = 0; w < readers.words.size(); ++w)
          replicated_for_[i].words[w] |= readers.words[w];
      }
    }
  }
}

int64_t StageCosts::time(const UnitSet& units) const {
  int64_t sum = 0;
  for (size_t u = 0; u < unit_time_.size(); ++u)
    if (units.has(static_cast<int>(u))) sum += unit_time_[u];
  for (size_t i = 0; i < replicated_for_.size(); ++i)
    if (replicated_for_[i].intersects(units)) sum += total_time(*cost_[order_.units.replicated[i]]);
  return sum;
}

std::vector<int> StageCosts::blocks_run(const UnitSet& units) const {
  std::vector<int> blocks;
  for (size_t u = 0; u < unit_time_.size(); ++u) {
    if (!units.has(static_cast<int>(u))) continue;
    for (int b : order_.units.blocks[u])
      if (graph_.blocks[b].reaches_loss) blocks.push_back(b);
  }
  for (size_t i = 0; i < replicated_for_.size(); ++i)
    if (replicated_for_[i].intersects(units)) blocks.push_back(order_.units.replicated[i]);
  std::sort(blocks.begin(), blocks.end());
  return blocks;
}

std::vector<int> StageCosts::channels(const std::vector<int>& stage_of_unit, int stages) const {
  std::vector<bool> talks(static_cast<size_t>(stages) * stages, false);
  for (const Route& route : routes_) {
    const int source = stage_of_unit[route.producer];
    for (int reader : route.readers) talks[source * stages + stage_of_unit[reader]] = true;
    if (route.fold.empty()) continue;
    int from = stage_of_unit[route.fold.front()];
    for (int unit : route.fold) {
      talks[from * stages + stage_of_unit[unit]] = true;
      from = stage_of_unit[unit];
    }
    talks[from * stages + source] = true;
  }
  std::vector<int> counts(stages, 0);
  for (int a = 0; a < stages; ++a)
    for (int b = 0; b < stages; ++b)
      if (a != b && talks[a * stages + b]) {
        ++counts[a];
        ++counts[b];
      }
  return counts;
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
  const BlockCost& cost = *cost_[block];
  int64_t sum = fixed_bytes(block) + cost.saved_internal.count;
  for (size_t i = 0; i < cost.keeps_input.size(); ++i)
    if (cost.keeps_input[i]) sum += value_bytes_[graph_.blocks[block].inputs[i]];
  if (cost.keeps_output) sum += value_bytes_[graph_.blocks[block].output];
  return sum;
}

namespace {

// One micro-batch through one stage, by the rules of simulate/rank_replay.cc.
class StageReplay {
 public:
  StageReplay(const BlockGraph& graph, const std::vector<const BlockCost*>& costs,
              const std::vector<int64_t>& value_bytes,
              const std::vector<std::vector<int>>& gradient_consumers,
              const std::vector<int>& unit_of_block, const std::vector<int>& blocks)
      : graph_(graph),
        costs_(costs),
        bytes_(value_bytes),
        gradient_consumers_(gradient_consumers),
        unit_of_block_(unit_of_block),
        blocks_(blocks),
        position_(graph.blocks.size(), -1),
        values_(graph.values.size()) {
    for (size_t i = 0; i < blocks.size(); ++i) position_[blocks[i]] = static_cast<int>(i);
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) note_uses(i);
    for (int b : blocks) has_backward_ = has_backward_ || graph.blocks[b].state != BlockState::kF;
    has_loss_ = is_here(graph.output);
    if (has_loss_ && has_backward_) kept_ += bytes_[graph.output];  // the prediction's gradient
  }

  // Between forward and backward.
  int64_t kept() const { return kept_; }

  int64_t forward_peak() const {
    int64_t live = 0, peak = 0;
    for (size_t v = 0; v < values_.size(); ++v)
      if (values_[v].last_reader >= 0 && is_received(static_cast<int>(v))) live += bytes_[v];
    for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
      const Block& block = graph_.blocks[blocks_[i]];
      const BlockCost& cost = *costs_[blocks_[i]];
      for (size_t a = 0; a < block.inputs.size(); ++a)
        if (values_[block.inputs[a]].first_reader == i && is_local(block.inputs[a]) &&
            !is_repeated(block, a))
          live += bytes_[block.inputs[a]];
      live += bytes_[block.output];
      if (block.state != BlockState::kF) live += cost.saved_internal.count;
      peak = std::max(peak, live + cost.workspace_forward.count);
      if (values_[block.output].last_reader < 0 && !outlives_forward(block.output))
        live -= bytes_[block.output];
      for (size_t a = 0; a < block.inputs.size(); ++a) {
        const int v = block.inputs[a];
        if (values_[v].last_reader == i && !outlives_forward(v) && !is_repeated(block, a))
          live -= bytes_[v];
      }
    }
    return has_loss_ ? std::max(peak, live + 2 * bytes_[graph_.output]) : peak;
  }

  int64_t backward_peak() const {
    int64_t live = kept_;
    std::vector<bool> has_gradient(values_.size(), false);
    if (has_loss_) has_gradient[graph_.output] = true;
    for (size_t v = 0; v < values_.size(); ++v) {
      if (!receives_gradient(static_cast<int>(v))) continue;
      has_gradient[v] = true;
      live += bytes_[v];
    }
    int64_t peak = live;
    for (int i = static_cast<int>(blocks_.size()) - 1; i >= 0; --i) {
      const Block& block = graph_.blocks[blocks_[i]];
      if (block.state == BlockState::kF) continue;
      const BlockCost& cost = *costs_[blocks_[i]];
      int64_t made = 0, stays = 0;
      for (int v : block.inputs) {
        if (!graph_.values[v].carries_grad) continue;
        made += bytes_[v];
        if (!has_gradient[v]) stays += bytes_[v];
        has_gradient[v] = true;
      }
      peak = std::max(peak, live + made + cost.workspace_backward.count);
      live += stays - cost.saved_internal.count - bytes_[block.output];
      for (size_t a = 0; a < block.inputs.size(); ++a)
        if (values_[block.inputs[a]].first_keeper == i && !is_repeated(block, a))
          live -= bytes_[block.inputs[a]];
      if (values_[block.output].first_keeper == i) live -= bytes_[block.output];
    }
    return peak;
  }

  // Directed pairs of ranks that the stage surely talks on.
  int channels() const {
    bool sends = false, receives = false, sends_gradient = false, receives_gradients = false;
    for (size_t v = 0; v < values_.size(); ++v) {
      const int value = static_cast<int>(v);
      sends = sends || values_[v].sent;
      receives_gradients = receives_gradients || receives_gradient(value);
      if (values_[v].last_reader < 0 || !is_received(value)) continue;
      receives = true;
      sends_gradient = sends_gradient || graph_.values[v].carries_grad;
    }
    return int{sends} + int{receives} + int{sends_gradient} + int{receives_gradients};
  }

 private:
  struct ValueUse {
    int first_reader = -1, last_reader = -1;  // positions in the stage
    int first_keeper = -1;  // the first block that keeps it: last in the backward pass
    bool sent = false;      // read by a block that is not in the stage
  };

  static bool is_repeated(const Block& block, size_t argument) {
    const auto here = block.inputs.begin() + static_cast<std::ptrdiff_t>(argument);
    return std::find(block.inputs.begin(), here, *here) != here;
  }

  bool is_local(int value) const { return graph_.values[value].producer < 0; }
  bool is_here(int value) const {
    return !is_local(value) && position_[graph_.values[value].producer] >= 0;
  }
  bool is_received(int value) const { return !is_local(value) && !is_here(value); }
  bool outlives_forward(int value) const {
    return values_[value].first_keeper >= 0 || values_[value].sent || value == graph_.output;
  }

  void keep(int value, int position) {
    if (values_[value].first_keeper >= 0) return;
    values_[value].first_keeper = position;
    kept_ += bytes_[value];
  }

  void note_uses(int position) {
    const Block& block = graph_.blocks[blocks_[position]];
    const BlockCost& cost = *costs_[blocks_[position]];
    const bool keeps = block.state != BlockState::kF;
    for (size_t a = 0; a < block.inputs.size(); ++a) {
      ValueUse& use = values_[block.inputs[a]];
      if (use.first_reader < 0) use.first_reader = position;
      use.last_reader = position;
      if (keeps && a < cost.keeps_input.size() && cost.keeps_input[a])
        keep(block.inputs[a], position);
    }
    if (keeps && cost.keeps_output) keep(block.output, position);
    if (keeps) kept_ += cost.saved_internal.count;
    if (unit_of_block_[blocks_[position]] < 0) return;  // replicated: never sent
    for (int consumer : graph_.values[block.output].consumers)
      if (graph_.blocks[consumer].reaches_loss && position_[consumer] < 0)
        values_[block.output].sent = true;
  }

  // Later stages have summed their part of the value's gradient before this stage's backward pass.
  bool receives_gradient(int value) const {
    const std::vector<int>& consumers = gradient_consumers_[value];
    if (consumers.empty() || position_[consumers.back()] >= 0) return false;
    return is_here(value) ||
           std::ranges::any_of(consumers, [&](int c) { return position_[c] >= 0; });
  }

  const BlockGraph& graph_;
  const std::vector<const BlockCost*>& costs_;
  const std::vector<int64_t>& bytes_;
  const std::vector<std::vector<int>>& gradient_consumers_;
  const std::vector<int>& unit_of_block_;
  const std::vector<int>& blocks_;
  std::vector<int> position_;  // by block, -1: not in the stage
  std::vector<ValueUse> values_;
  bool has_backward_ = false, has_loss_ = false;
  int64_t kept_ = 0;
};

}  // namespace

StageCost StageCosts::of(const UnitSet& units) const {
  const std::vector<int> blocks = blocks_run(units);
  const StageReplay replay(graph_, cost_, value_bytes_, gradient_consumers_, order_.unit_of_block,
                           blocks);
  StageCost cost{.time = time(units), .in_flight = replay.kept(), .channels = replay.channels()};
  cost.forward_peak = replay.forward_peak();
  cost.backward_peak = replay.backward_peak();
  for (int b : blocks) cost.fixed += fixed_bytes(b);
  for (int u : units.members())
    for (int b : order_.units.blocks[u])
      if (!graph_.blocks[b].reaches_loss) cost.fixed += fixed_bytes(b);
  return cost;
}

StageContext stage_context(const std::string& schedule, int stage, int stages,
                           const std::vector<int64_t>& micro_batch_sizes, int64_t micro_batch) {
  const int count = static_cast<int>(micro_batch_sizes.size());
  const int in_flight = schedule == "gpipe" ? count : std::min(count, stages - stage);
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

int64_t memory_bound(const StageCost& cost, const StageContext& context, const Device& device,
                     std::optional<int> channels) {
  const auto at = [&](const StageContext::Moment& moment, int64_t peak) {
    return (cost.in_flight * moment.others + peak * moment.running) / context.micro_batch;
  };
  int64_t dynamic = at(context.backward, cost.backward_peak);
  for (const StageContext::Moment& moment : context.forward)
    dynamic = std::max(dynamic, at(moment, cost.forward_peak));
  const auto slack = static_cast<int64_t>(device.slack_fraction * static_cast<double>(dynamic));
  return device.base.count + cost.fixed + dynamic + slack +
         device.comm_buffer_per_peer.count * channels.value_or(cost.channels);
}

}  // namespace stagecraft
