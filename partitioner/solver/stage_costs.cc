#include "partitioner/solver/stage_costs.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kFullSize = 4;  // fp32
constexpr int64_t kHalfSize = 2;

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

int64_t StageCosts::fixed_bytes(int block) const {
  const int64_t parameters = graph_.blocks[block].parameters();
  const int64_t compute = costs_.precision == "fp32" ? kFullSize : kHalfSize;
  if (!graph_.blocks[block].trainable) return parameters * compute;
  const int64_t master = compute == kFullSize ? 0 : kFullSize;
  return parameters *
         (compute + kFullSize + master + 2 * kFullSize);  // gradients; Adam's two moments
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

// One micro-batch through one stage.
class StageReplay {
 public:
  StageReplay(const BlockGraph& graph, const std::vector<const BlockCost*>& costs,
              const std::vector<int64_t>& value_bytes,
              const std::vector<std::vector<int>>& gradient_consumers,
              const std::vector<int>& blocks)
      : graph_(graph),
        costs_(costs),
        bytes_(value_bytes),
        gradient_consumers_(gradient_consumers),
        blocks_(blocks) {
    position_.assign(graph.blocks.size(), -1);
    for (size_t i = 0; i < blocks.size(); ++i) position_[blocks[i]] = static_cast<int>(i);
    values_.assign(graph.values.size(), ValueUse{});
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) note_uses(i);
  }

  int64_t kept() const { return kept_; }

  int64_t forward_peak() const {
    int64_t live = 0, peak = 0;
    for (size_t v = 0; v < values_.size(); ++v)
      if (values_[v].last_reader >= 0 && is_received(static_cast<int>(v))) live += bytes_[v];
    for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
      const Block& block = graph_.blocks[blocks_[i]];
      const BlockCost& cost = *costs_[blocks_[i]];
      live += cost.saved_internal.count + bytes_[block.output];
      peak = std::max(peak, live + cost.workspace_forward.count);
      if (!outlives_forward(block.output) && values_[block.output].last_reader < 0)
        live -= bytes_[block.output];
      for (size_t a = 0; a < block.inputs.size(); ++a) {
        const int v = block.inputs[a];
        if (graph_.values[v].producer < 0 || is_repeated(block, a)) continue;
        if (values_[v].last_reader == i && !outlives_forward(v)) live -= bytes_[v];
      }
    }
    return peak;
  }

  int64_t backward_peak() const {
    int64_t live = kept_, peak = kept_;
    std::vector<bool> has_gradient(values_.size(), false);
    for (size_t v = 0; v < values_.size(); ++v) {
      if (!waits_for_backward(static_cast<int>(v))) continue;
      has_gradient[v] = true;
      live += bytes_[v];
    }
    peak = std::max(peak, live);
    for (int i = static_cast<int>(blocks_.size()) - 1; i >= 0; --i) {
      const Block& block = graph_.blocks[blocks_[i]];
      if (block.state == BlockState::kF) continue;
      const BlockCost& cost = *costs_[blocks_[i]];
      int64_t made = 0, stays = 0;
      for (size_t a = 0; a < block.inputs.size(); ++a) {
        const int v = block.inputs[a];
        if (!graph_.values[v].carries_grad) continue;
        made += bytes_[v];
        if (!has_gradient[v]) stays += bytes_[v];
        has_gradient[v] = true;
      }
      peak = std::max(peak, live + made + cost.workspace_backward.count);
      live += stays - cost.saved_internal.count;
      if (has_gradient[block.output]) live -= bytes_[block.output];
      for (size_t v_at = 0; v_at < block.inputs.size(); ++v_at)
        if (!is_repeated(block, v_at) && values_[block.inputs[v_at]].first_keeper == i)
          live -= bytes_[block.inputs[v_at]];
      if (values_[block.output].first_keeper == i) live -= bytes_[block.output];
    }
    return peak;
  }

 private:
  struct ValueUse {
    int last_reader = -1;  // position in the stage
    int first_keeper =
        -1;  // position in the stage of the first block that keeps it; last in the backward pass
    bool sent = false;  // read by a block that is not in the stage
  };

  static bool is_repeated(const Block& block, size_t argument) {
    return std::find(block.inputs.begin(),
                     block.inputs.begin() + static_cast<std::ptrdiff_t>(argument),
                     block.inputs[argument]) !=
           block.inputs.begin() + static_cast<std::ptrdiff_t>(argument);
  }

  bool is_here(int value) const {
    const int producer = graph_.values[value].producer;
    return producer >= 0 && position_[producer] >= 0;
  }
  bool is_received(int value) const {
    return graph_.values[value].producer >= 0 && !is_here(value);
  }
  bool outlives_forward(int value) const {
    return values_[value].first_keeper >= 0 || values_[value].sent || value == graph_.output;
  }

  void keep(int value, int position) {
    if (graph_.values[value].producer < 0) return;  // local inputs are not counted here
    if (values_[value].first_keeper < 0) {
      values_[value].first_keeper = position;
      kept_ += bytes_[value];
    }
  }

  void note_uses(int position) {
    const int index = blocks_[position];
    const Block& block = graph_.blocks[index];
    const BlockCost& cost = *costs_[index];
    for (size_t a = 0; a < block.inputs.size(); ++a) {
      values_[block.inputs[a]].last_reader = position;
      if (a < cost.keeps_input.size() && cost.keeps_input[a]) keep(block.inputs[a], position);
    }
    if (cost.keeps_output) keep(block.output, position);
    kept_ += cost.saved_internal.count;
    for (int consumer : graph_.values[block.output].consumers)
      if (graph_.blocks[consumer].reaches_loss && position_[consumer] < 0)
        values_[block.output].sent = true;
  }

  // A gradient that is there before the stage's backward pass starts: of the prediction, or summed
  // by later stages.
  bool waits_for_backward(int value) const {
    if (value == graph_.output) return is_here(value);
    bool here = is_here(value), elsewhere = false;
    const std::vector<int>& consumers = gradient_consumers_[value];
    if (consumers.empty()) return false;
    for (int consumer : consumers) (position_[consumer] >= 0 ? here : elsewhere) = true;
    return here && elsewhere && position_[consumers.back()] < 0;
  }

  const BlockGraph& graph_;
  const std::vector<const BlockCost*>& costs_;
  const std::vector<int64_t>& bytes_;
  const std::vector<std::vector<int>>& gradient_consumers_;
  const std::vector<int>& blocks_;
  std::vector<int> position_;  // by block, -1: not in the stage
  std::vector<ValueUse> values_;
  int64_t kept_ = 0;
};

}  // namespace

StageCost StageCosts::of(const UnitSet& units) const {
  const std::vector<int> blocks = blocks_run(units);
  const StageReplay replay(graph_, cost_, value_bytes_, gradient_consumers_, blocks);
  StageCost cost{.time = time(units), .in_flight = replay.kept()};
  cost.peak = std::max(replay.forward_peak(), replay.backward_peak());
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
  const int64_t others = std::accumulate(micro_batch_sizes.begin() + 1,
                                         micro_batch_sizes.begin() + in_flight, int64_t{0});
  return {.in_flight = in_flight,
          .samples = others,
          .running = micro_batch_sizes.front(),
          .micro_batch = micro_batch};
}

int64_t memory_bound(const StageCost& cost, const StageContext& context, const Device& device) {
  const int64_t dynamic =
      (cost.in_flight * context.samples + cost.peak * context.running) / context.micro_batch;
  return device.base.count + cost.fixed + dynamic;
}

}  // namespace stagecraft
