#include "partitioner/solver/stage_replay.h"

#include <algorithm>

#include "partitioner/base/error.h"

namespace stagecraft {

ReplayFacts::ReplayFacts(const BlockGraph& graph_in, const CostTable& table,
                         const std::vector<int>& unit_of_block)
    : graph(graph_in) {
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const auto found = table.blocks.find(graph.blocks[b].name);
    check(found != table.blocks.end(), "cost table: a block of the graph is missing");
    costs.push_back(&found->second);
    is_replicated.push_back(unit_of_block[b] < 0);
  }
  for (size_t v = 0; v < graph.values.size(); ++v) {
    value_bytes.push_back(graph.values[v].bytes(table.micro_batch).count);
    gradient_consumers.push_back(graph.gradient_consumers(static_cast<int>(v)));
  }
}

StageReplay::StageReplay(const ReplayFacts& facts)
    : facts_(facts),
      position_(facts.graph.blocks.size(), -1),
      use_(facts.graph.values.size()),
      is_touched_(facts.graph.values.size(), false) {}

void StageReplay::load(const std::vector<int>& blocks, const std::vector<bool>* recompute) {
  for (int b : blocks_) position_[b] = -1;
  for (int v : touched_) {
    use_[v] = ValueUse{};
    is_touched_[v] = false;
  }
  touched_.clear();
  blocks_ = blocks;
  recompute_ = recompute;
  kept_ = 0;
  has_backward_ = false;
  for (size_t i = 0; i < blocks_.size(); ++i) position_[blocks_[i]] = static_cast<int>(i);
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) note_uses(i);
  for (int b : blocks_)
    has_backward_ = has_backward_ || facts_.graph.blocks[b].state != BlockState::kF;
  has_loss_ = is_here(facts_.graph.output);
  if (has_loss_ && has_backward_)
    kept_ += facts_.value_bytes[facts_.graph.output];  // the prediction's gradient
}

void StageReplay::touch(int value) {
  if (is_touched_[value]) return;
  is_touched_[value] = true;
  touched_.push_back(value);
}

bool StageReplay::is_repeated(const Block& block, size_t argument) {
  const auto here = block.inputs.begin() + static_cast<std::ptrdiff_t>(argument);
  return std::find(block.inputs.begin(), here, *here) != here;
}

void StageReplay::keep(int value, int position, bool rebuilds) {
  ValueUse& use = use_[value];
  if (use.first_keeper == position) {
    use.only_rebuilds = use.only_rebuilds && rebuilds;
    return;
  }
  if (use.first_keeper >= 0) return;
  use.first_keeper = position;
  use.only_rebuilds = rebuilds;
  kept_ += facts_.value_bytes[value];
}

void StageReplay::note_uses(int position) {
  const int b = blocks_[position];
  const Block& block = facts_.graph.blocks[b];
  const BlockCost& cost = *facts_.costs[b];
  const bool keeps = block.state != BlockState::kF;
  const bool again = runs_again(b);
  for (size_t a = 0; a < block.inputs.size(); ++a) {
    const int v = block.inputs[a];
    touch(v);
    ValueUse& use = use_[v];
    if (use.first_reader < 0) use.first_reader = position;
    use.last_reader = position;
    const bool saves = a < cost.keeps_input.size() && cost.keeps_input[a];
    if (keeps && (saves || again)) keep(v, position, !saves);
  }
  touch(block.output);
  if (keeps && !again) {
    if (cost.keeps_output) keep(block.output, position, false);
    kept_ += cost.saved_internal.count;
  }
  if (facts_.is_replicated[b]) return;  // never sent
  for (int consumer : facts_.graph.values[block.output].consumers)
    if (facts_.graph.blocks[consumer].reaches_loss && position_[consumer] < 0)
      use_[block.output].sent = true;
}

int64_t StageReplay::forward_peak() {
  const std::vector<int64_t>& bytes = facts_.value_bytes;
  int64_t live = 0, peak = 0;
  for (int v : touched_)
    if (use_[v].last_reader >= 0 && is_received(v)) live += bytes[v];
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    const Block& block = facts_.graph.blocks[blocks_[i]];
    const BlockCost& cost = *facts_.costs[blocks_[i]];
    for (size_t a = 0; a < block.inputs.size(); ++a)
      if (use_[block.inputs[a]].first_reader == i && is_local(block.inputs[a]) &&
          !is_repeated(block, a))
        live += bytes[block.inputs[a]];
    live += bytes[block.output];
    if (block.state != BlockState::kF) live += cost.saved_internal.count;
    peak = std::max(peak, live + cost.workspace_forward.count);
    if (runs_again(blocks_[i])) live -= cost.saved_internal.count;  // scratch of this run
    if (use_[block.output].last_reader < 0 && !outlives_forward(block.output))
      live -= bytes[block.output];
    for (size_t a = 0; a < block.inputs.size(); ++a) {
      const int v = block.inputs[a];
      if (use_[v].last_reader == i && !outlives_forward(v) && !is_repeated(block, a))
        live -= bytes[v];
    }
  }
  return has_loss_ ? std::max(peak, live + 2 * bytes[facts_.graph.output]) : peak;
}

int64_t StageReplay::backward_peak() {
  const std::vector<int64_t>& bytes = facts_.value_bytes;
  int64_t live = kept_;
  for (int v : touched_) {
    use_[v].has_gradient = receives_gradient(v);
    if (use_[v].has_gradient) live += bytes[v];
  }
  if (has_loss_) use_[facts_.graph.output].has_gradient = true;
  int64_t peak = live;
  for (int i = static_cast<int>(blocks_.size()) - 1; i >= 0; --i) {
    const Block& block = facts_.graph.blocks[blocks_[i]];
    if (block.state == BlockState::kF) continue;
    const BlockCost& cost = *facts_.costs[blocks_[i]];
    const auto drop_kept_inputs = [&](bool rebuilds) {
      for (size_t a = 0; a < block.inputs.size(); ++a) {
        const ValueUse& use = use_[block.inputs[a]];
        if (use.first_keeper == i && use.only_rebuilds == rebuilds && !is_repeated(block, a))
          live -= bytes[block.inputs[a]];
      }
    };
    int64_t rebuilt = cost.saved_internal.count;  // or kept all along
    if (runs_again(blocks_[i])) {
      peak = std::max(peak, live + bytes[block.output] + rebuilt + cost.workspace_forward.count);
      if (cost.keeps_output) rebuilt += bytes[block.output];
      live += rebuilt;
      drop_kept_inputs(true);
    }
    int64_t made = 0, stays = 0;
    for (int v : block.inputs) {
      if (!facts_.graph.values[v].carries_grad) continue;
      made += bytes[v];
      if (!use_[v].has_gradient) stays += bytes[v];
      use_[v].has_gradient = true;
    }
    peak = std::max(peak, live + made + cost.workspace_backward.count);
    live += stays - rebuilt - bytes[block.output];  // and the output's gradient
    drop_kept_inputs(false);
    if (use_[block.output].first_keeper == i) live -= bytes[block.output];
  }
  return peak;
}

int StageReplay::channels() const {
  bool sends = false, receives = false, sends_gradient = false, receives_gradients = false;
  for (int v : touched_) {
    sends = sends || use_[v].sent;
    receives_gradients = receives_gradients || receives_gradient(v);
    if (use_[v].last_reader < 0 || !is_received(v)) continue;
    receives = true;
    sends_gradient = sends_gradient || facts_.graph.values[v].carries_grad;
  }
  return int{sends} + int{receives} + int{sends_gradient} + int{receives_gradients};
}

// Later stages have summed their part of the value's gradient before this stage's backward pass.
bool StageReplay::receives_gradient(int value) const {
  const std::vector<int>& consumers = facts_.gradient_consumers[value];
  if (consumers.empty() || position_[consumers.back()] >= 0) return false;
  return is_here(value) || std::ranges::any_of(consumers, [&](int c) { return position_[c] >= 0; });
}

}  // namespace stagecraft
