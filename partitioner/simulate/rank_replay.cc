#include "partitioner/simulate/rank_replay.h"

#include <algorithm>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {
namespace {

// A tensor counts once, however many hold it.
struct Tensor {
  Bytes bytes;
  int holds = 0;     // consumers, messages to send and blocks that keep it
  int sends = 0;     // of these: sends under way
  int message = -1;  // that brought it, until something here uses one of the message's tensors
  bool in_boundary() const { return message >= 0 || sends > 0; }
};

using ValueKey = std::pair<int, int>;           // value, micro-batch
using GradientKey = std::tuple<int, int, int>;  // value, micro-batch, stage that sums it next

class Replay {
 public:
  Replay(const ReplayInput& input, int rank)
      : in_(input),
        rank_(rank),
        uses_(uses_on_rank(input.graph, input.placement, input.schedule, rank)) {}

  DynamicMemory run() {
    for (const Action& action : in_.schedule.ranks[rank_]) {
      switch (action.kind) {
        case ActionKind::kForward:
          forward(action.stage, action.micro_batch);
          break;
        case ActionKind::kBackward:
        case ActionKind::kBackwardInput:
          backward(action);
          break;
        case ActionKind::kBackwardWeight:
          backward_weights(action.stage, action.micro_batch);
          break;
        case ActionKind::kSend:
          send(action.message);
          break;
        case ActionKind::kReceive:
          receive(action.message);
          break;
        case ActionKind::kReduce:
          break;
        case ActionKind::kStep:
          while (!sends_.empty()) finish_send();
          break;
      }
    }
    check(now_ == DynamicMemory{}, "a replayed rank ends its step with tensors left over");
    return peak_;
  }

 private:
  Bytes value_bytes(int value, int j) const {
    return in_.graph.values[value].bytes(in_.micro_batch_sizes[j]);
  }
  Bytes scaled(Bytes bytes, int j) const {
    return {scale_to(bytes.count, in_.micro_batch_sizes[j], in_.table.micro_batch)};
  }
  // The rank holds what it holds now and `more` on top for a moment.
  void touch(const DynamicMemory& more) {
    const DynamicMemory sum{.activations = now_.activations + more.activations,
                            .recompute = now_.recompute + more.recompute,
                            .boundary = now_.boundary + more.boundary,
                            .workspace = now_.workspace + more.workspace};
    if (sum.total() > peak_.total()) peak_ = sum;
  }
  template <typename Change>
  void change(Tensor& tensor, const Change& apply) {
    (tensor.in_boundary() ? now_.boundary : now_.activations) -= tensor.bytes;
    apply(tensor);
    (tensor.in_boundary() ? now_.boundary : now_.activations) += tensor.bytes;
    touch({});
  }
  template <typename Key>
  Tensor& add(std::map<Key, Tensor>& tensors, const Key& key, Tensor tensor) {
    const auto [entry, is_new] = tensors.emplace(key, tensor);
    check(is_new, "a tensor comes twice");
    (tensor.in_boundary() ? now_.boundary : now_.activations) += tensor.bytes;
    touch({});
    return entry->second;
  }
  template <typename Key>
  void release(std::map<Key, Tensor>& tensors, const Key& key) {
    const auto entry = tensors.find(key);
    check(entry != tensors.end() && entry->second.holds > 0,
          "a tensor is released that nobody holds");
    if (--entry->second.holds > 0) return;
    (entry->second.in_boundary() ? now_.boundary : now_.activations) -= entry->second.bytes;
    tensors.erase(entry);
  }

  void forward(int stage, int j) {
    for (int b : in_.flow.blocks[stage]) run_block(b, j);
    if (stage != in_.flow.loss_stage) return;
    // The error takes a tensor beside prediction and noise; its gradient stays.
    const Bytes output = value_bytes(in_.graph.output, j);
    touch({.activations = output + output, .recompute = {}, .boundary = {}, .workspace = {}});
    release(values_, ValueKey{in_.graph.output, j});
    if (in_.flow.has_backward[stage]) {
      add(gradients_, GradientKey{in_.graph.output, j, stage}, {.bytes = output, .holds = 1});
    }
  }

  void run_block(int b, int j) {
    const Block& block = in_.graph.blocks[b];
    const BlockCost& cost = *in_.costs[b];
    const ValueKey output{block.output, j};
    for (int v : block.inputs) use_value(v, j);
    // A replicated block may have run for another stage of the rank.
    if (!values_.contains(output)) {
      const bool keeps = block.state != BlockState::kF;
      const bool again = keeps && in_.placement.recompute[b];
      const Bytes out = value_bytes(block.output, j), saved = scaled(cost.saved_internal, j);
      // What a recomputed block does not keep now is scratch of this run.
      touch({.activations = keeps && !again ? out + saved : out,
             .recompute = {},
             .boundary = {},
             .workspace = scaled(cost.workspace_forward, j) + (again ? saved : Bytes{})});
      Tensor& made = add(values_, output, {.bytes = out, .holds = 1 + uses_[block.output]});
      if (keeps && !again) {
        now_.activations += saved;
        made.holds += cost.keeps_output;
      }
      if (keeps) {
        for (size_t i = 0; i < block.inputs.size(); ++i) {
          if (again || keeps_input(cost, i)) ++values_.at({block.inputs[i], j}).holds;
        }
      }
      release(values_, output);
    }
    for (int v : block.inputs) release(values_, ValueKey{v, j});
  }

  static bool keeps_input(const BlockCost& cost, size_t position) {
    return position < cost.keeps_input.size() && cost.keeps_input[position];
  }

  // A local input is made when it is first used; a received value leaves the boundary.
  void use_value(int value, int j) {
    const auto entry = values_.find({value, j});
    if (entry != values_.end()) {
      take_in(entry->second.message);
      return;
    }
    check(in_.graph.values[value].producer < 0,
          "a value is used that was neither made nor received");
    add(values_, ValueKey{value, j}, {.bytes = value_bytes(value, j), .holds = uses_[value]});
  }

  void backward(const Action& action) {
    const int stage = action.stage, j = action.micro_batch;
    const bool defers_weights = action.kind == ActionKind::kBackwardInput;
    const std::vector<int>& blocks = in_.flow.blocks[stage];
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
      if (in_.graph.blocks[*b].state != BlockState::kF) run_backward(*b, stage, j, defers_weights);
    }
    for (const Hop& hop : in_.flow.backward) {
      if (hop.from_stage != stage) continue;
      // Inside the rank the next stage goes on with the sum; otherwise it waits for its S.
      if (in_.placement.rank_of_stage[hop.to_stage] != rank_) continue;
      auto node = gradients_.extract({hop.value, j, stage});
      check(!node.empty(), "a gradient is handed on that nobody computed");
      node.key() = {hop.value, j, hop.to_stage};
      check(gradients_.insert(std::move(node)).inserted, "a gradient comes twice");
    }
  }

  void run_backward(int b, int stage, int j, bool defers_weights) {
    const Block& block = in_.graph.blocks[b];
    const BlockCost& cost = *in_.costs[b];
    const GradientKey output{block.output, j, stage};
    use_gradient(output);
    if (in_.placement.recompute[b]) rebuild(b, j);
    Bytes inputs;
    for (int v : block.inputs) {
      if (in_.graph.values[v].carries_grad) inputs += value_bytes(v, j);
    }
    touch({.activations = inputs,
           .recompute = {},
           .boundary = {},
           .workspace = scaled(cost.workspace_backward, j)});
    for (int v : block.inputs) {
      if (!in_.graph.values[v].carries_grad) continue;
      const GradientKey key{v, j, stage};
      if (gradients_.contains(key)) {
        use_gradient(key);  // added in place
      } else {
        add(gradients_, key, {.bytes = value_bytes(v, j), .holds = 1});
      }
    }
    if (defers_weights && block.trainable) return;  // W needs all of it once more
    free_saved(b, j);
    release(gradients_, output);
  }

  void use_gradient(const GradientKey& key) {
    const auto entry = gradients_.find(key);
    check(entry != gradients_.end(), "a gradient is used that was neither computed nor received");
    take_in(entry->second.message);
  }

  void rebuild(int b, int j) {
    const Block& block = in_.graph.blocks[b];
    const BlockCost& cost = *in_.costs[b];
    const Bytes out = value_bytes(block.output, j), saved = scaled(cost.saved_internal, j);
    touch({.activations = {},
           .recompute = out + saved,
           .boundary = {},
           .workspace = scaled(cost.workspace_forward, j)});
    now_.recompute += cost.keeps_output ? out + saved : saved;
    for (size_t i = 0; i < block.inputs.size(); ++i) {
      if (!keeps_input(cost, i)) release(values_, ValueKey{block.inputs[i], j});
    }
  }

  void free_saved(int b, int j) {
    const Block& block = in_.graph.blocks[b];
    const BlockCost& cost = *in_.costs[b];
    const bool again = in_.placement.recompute[b];
    const Bytes saved = scaled(cost.saved_internal, j);
    if (again) {
      now_.recompute -= cost.keeps_output ? value_bytes(block.output, j) + saved : saved;
    } else {
      now_.activations -= saved;
      if (cost.keeps_output) release(values_, ValueKey{block.output, j});
    }
    for (size_t i = 0; i < block.inputs.size(); ++i) {
      if (keeps_input(cost, i)) release(values_, ValueKey{block.inputs[i], j});
    }
  }

  void backward_weights(int stage, int j) {
    const std::vector<int>& blocks = in_.flow.blocks[stage];
    for (auto b = blocks.rbegin(); b != blocks.rend(); ++b) {
      const Block& block = in_.graph.blocks[*b];
      if (block.state == BlockState::kF || !block.trainable) continue;
      touch({.activations = {},
             .recompute = {},
             .boundary = {},
             .workspace = scaled(in_.costs[*b]->workspace_backward, j)});
      free_saved(*b, j);
      release(gradients_, GradientKey{block.output, j, stage});
    }
  }

  // Calls with the tensors' map and key, and how many hold one here.
  template <typename Apply>
  void for_each_received(int id, const Apply& apply) {
    const Message& message = in_.schedule.messages[id];
    const int j = message.micro_batch;
    for (const MessageItem& item : message.items) {
      if (message.direction == Direction::kForward) {
        apply(values_, ValueKey{item.value, j}, uses_[item.value]);
        continue;
      }
      for (const Hop& hop : in_.flow.backward) {
        if (hop.value == item.value && hop.from_stage == message.src_stage) {
          apply(gradients_, GradientKey{item.value, j, hop.to_stage}, 1);
        }
      }
    }
  }

  void receive(int id) {
    for_each_received(id, [&](auto& tensors, const auto& key, int holds) {
      add(tensors, key,
          {.bytes = value_bytes(std::get<0>(key), std::get<1>(key)),
           .holds = holds,
           .sends = 0,
           .message = id});
    });
  }

  // The executor takes a message's tensors together, when the first of them is wanted.
  void take_in(int id) {
    if (id < 0) return;
    for_each_received(id, [&](auto& tensors, const auto& key, int) {
      change(tensors.at(key), [](Tensor& tensor) { tensor.message = -1; });
    });
  }

  template <typename Apply>
  void for_each_sent(int id, const Apply& apply) {
    const Message& message = in_.schedule.messages[id];
    for (const MessageItem& item : message.items) {
      if (message.direction == Direction::kForward) {
        apply(values_, ValueKey{item.value, message.micro_batch});
      } else {
        apply(gradients_, GradientKey{item.value, message.micro_batch, message.src_stage});
      }
    }
  }

  void send(int id) {
    while (sends_.size() >= kSendsInFlight) finish_send();
    for_each_sent(id, [&](auto& tensors, const auto& key) {
      const auto entry = tensors.find(key);
      check(entry != tensors.end(), "a tensor is sent that is not there");
      take_in(entry->second.message);
      change(entry->second, [](Tensor& tensor) { ++tensor.sends; });
    });
    sends_.push_back(id);
  }

  void finish_send() {
    for_each_sent(sends_.front(), [&](auto& tensors, const auto& key) {
      change(tensors.at(key), [](Tensor& tensor) { --tensor.sends; });
      release(tensors, key);
    });
    sends_.pop_front();
  }

  const ReplayInput& in_;
  const int rank_;
  const std::vector<int> uses_;  // by value
  std::map<ValueKey, Tensor> values_;
  std::map<GradientKey, Tensor> gradients_;
  std::deque<int> sends_;
  DynamicMemory now_, peak_;
};

}  // namespace

DynamicMemory replay_rank(const ReplayInput& input, int rank) { return Replay(input, rank).run(); }

}  // namespace stagecraft
