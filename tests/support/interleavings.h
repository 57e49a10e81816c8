// Runs a small schedule in every possible interleaving: an oracle for the verifier that shares no
// code with it.
//
// Ranks work through their lists one action at a time; a send and its receive happen together when
// both are next. What an action may use is followed item by item from the graph's edges, not from
// the message table. Sums over micro-batches are checked too: a stage's input gradients and weight
// gradients each come in ascending micro-batch, and nothing comes behind the optimizer's step.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft::testing {

class Interleavings {
 public:
  Interleavings(const BlockGraph& graph, const Placement& placement, const Schedule& schedule)
      : graph_(graph), placement_(placement), schedule_(schedule) {
    for (const auto& list : schedule.ranks) checked_.emplace_back(list.size());
  }

  // Empty when every interleaving reaches the end with each input at hand; otherwise what went
  // wrong in one. At most 4 ranks.
  std::string explore() {
    std::vector<Positions> open = {Positions(schedule_.ranks.size())};
    std::unordered_set<uint64_t> seen = {packed(open[0])};
    while (!open.empty()) {
      const Positions at = open.back();
      open.pop_back();
      const auto next = successors(at);
      if (!fault_.empty()) return fault_;
      if (next.empty() && !finished(at)) return "stuck";
      for (const Positions& state : next) {
        if (seen.insert(packed(state)).second) open.push_back(state);
      }
    }
    return "";
  }

 private:
  using Positions = std::vector<size_t>;  // how far each rank is in its list

  static uint64_t packed(const Positions& at) {
    uint64_t word = 0;
    for (const size_t position : at) word = word << 16 | position;
    return word;
  }

  bool finished(const Positions& at) const {
    for (size_t r = 0; r < at.size(); ++r) {
      if (at[r] < schedule_.ranks[r].size()) return false;
    }
    return true;
  }

  std::vector<Positions> successors(const Positions& at) {
    std::vector<Positions> next;
    for (size_t r = 0; r < at.size(); ++r) {
      if (at[r] == schedule_.ranks[r].size()) continue;
      const Action& action = schedule_.ranks[r][at[r]];
      if (action.kind == ActionKind::kReceive) continue;
      auto state = at;
      ++state[r];
      if (action.kind == ActionKind::kSend) {
        // The other side must have come to a receive from here; what it expects must be what it
        // gets.
        const Message& message = schedule_.messages[action.message];
        const size_t peer = static_cast<size_t>(message.dst_rank);
        if (at[peer] == schedule_.ranks[peer].size()) continue;
        const Action& other = schedule_.ranks[peer][at[peer]];
        if (other.kind != ActionKind::kReceive) continue;
        if (schedule_.messages[other.message].src_rank != static_cast<int>(r)) continue;
        if (other.message != action.message)
          fault_ = to_string(action) + " meets " + to_string(other);
        check_once(peer, at[peer]);
        ++state[peer];
      }
      check_once(r, at[r]);
      next.push_back(state);
    }
    return next;
  }

  // The parts of its stage's work that an action does.
  static bool does_forward(const Action& a) { return a.kind == ActionKind::kForward; }
  static bool does_inputs(const Action& a) {
    return a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardInput;
  }
  static bool does_weights(const Action& a) {
    return a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardWeight;
  }

  // In rank r's list before position `end`: this part of this stage and micro-batch.
  bool ran(size_t r, size_t end, bool (*does)(const Action&), int stage, int j) const {
    for (size_t i = 0; i < end; ++i) {
      const Action& a = schedule_.ranks[r][i];
      if (does(a) && a.stage == stage && a.micro_batch == j) return true;
    }
    return false;
  }
  bool received(size_t r, size_t end, Direction direction, int source, int value, int j) const {
    for (size_t i = 0; i < end; ++i) {
      if (schedule_.ranks[r][i].kind != ActionKind::kReceive) continue;
      const Message& m = schedule_.messages[schedule_.ranks[r][i].message];
      if (m.direction != direction || m.src_stage != source || m.micro_batch != j) continue;
      for (const MessageItem& item : m.items) {
        if (item.value == value) return true;
      }
    }
    return false;
  }

  // What stands before an action in its own list is the same in every interleaving.
  void check_once(size_t r, size_t at) {
    if (checked_[r][at]) return;
    checked_[r][at] = true;
    check_inputs(r, at, schedule_.ranks[r][at]);
  }

  void need(bool holds, const Action& action, const char* what) {
    if (!holds) fault_ = to_string(action) + " lacks " + what;
  }

  void check_inputs(size_t r, size_t end, const Action& a) {
    if (a.kind == ActionKind::kSend) {
      const Message& m = schedule_.messages[a.message];
      need(ran(r, end, m.direction == Direction::kForward ? does_forward : does_inputs, m.src_stage,
               m.micro_batch),
           a, "what it sends");
    }
    if (a.kind == ActionKind::kForward && placement_.relays) {
      for (int v = 0; v < static_cast<int>(graph_.values.size()); ++v) {
        const int home = home_of(v);
        if (home < 0 || home >= a.stage || last_stage_with(v) < a.stage) continue;
        need(received(r, end, Direction::kForward, a.stage - 1, v, a.micro_batch), a,
             "a relayed value");
      }
    } else if (a.kind == ActionKind::kForward) {
      for (size_t b = 0; b < graph_.blocks.size(); ++b) {
        if (placement_.stage_of_block[b] != a.stage || !graph_.blocks[b].reaches_loss) continue;
        for (int v : graph_.blocks[b].inputs) {
          const int producer = graph_.values[v].producer;
          const int from = producer < 0 ? -1 : placement_.stage_of_block[producer];
          if (from < 0 || from == a.stage) continue;
          need(placement_.rank_of_stage[from] == static_cast<int>(r)
                   ? ran(r, end, does_forward, from, a.micro_batch)
                   : received(r, end, Direction::kForward, from, v, a.micro_batch),
               a, "an input");
        }
      }
    }
    if (does_weights(a) && !does_inputs(a)) {
      need(ran(r, end, does_inputs, a.stage, a.micro_batch), a, "its input gradients");
    }
    for (size_t i = 0; i < end; ++i) {
      const Action& before = schedule_.ranks[r][i];
      const bool same_sum =
          (does_inputs(a) && does_inputs(before)) || (does_weights(a) && does_weights(before));
      need(!same_sum || before.stage != a.stage || before.micro_batch < a.micro_batch, a,
           "a sum in order");
      need(before.kind != ActionKind::kStep, a, "a place before the step");
    }
    if (does_inputs(a)) {
      need(ran(r, end, does_forward, a.stage, a.micro_batch), a, "its forward");
      for (size_t v = 0; v < graph_.values.size(); ++v) {
        const Value& value = graph_.values[v];
        if (!value.carries_grad) continue;
        // The stage after this one, counted towards the loss, among consumers; for the producer all
        // consumers count.
        const int home = placement_.stage_of_block[value.producer];
        int before = -1;
        bool here = home == a.stage;
        for (int consumer : value.consumers) {
          if (!graph_.blocks[consumer].reaches_loss) continue;
          const int stage = placement_.stage_of_block[consumer];
          here = here || stage == a.stage;
          if (stage > a.stage && (before < 0 || stage < before)) before = stage;
        }
        if (placement_.relays && home <= a.stage && before > 0) {
          here = true;
          before = a.stage + 1;
          while (!has_backward(before)) ++before;
        }
        if (!here || before < 0) continue;
        need(placement_.rank_of_stage[before] == static_cast<int>(r)
                 ? ran(r, end, does_inputs, before, a.micro_batch)
                 : received(r, end, Direction::kBackward, before, static_cast<int>(v),
                            a.micro_batch),
             a, "a gradient");
      }
    }
  }

  int home_of(int value) const {
    const int producer = graph_.values[value].producer;
    return producer < 0 ? -1 : placement_.stage_of_block[producer];
  }
  int last_stage_with(int value) const {
    int last = -1;
    for (int consumer : graph_.values[value].consumers)
      if (graph_.blocks[consumer].reaches_loss)
        last = std::max(last, placement_.stage_of_block[consumer]);
    return last;
  }
  bool has_backward(int stage) const {
    for (size_t b = 0; b < graph_.blocks.size(); ++b)
      if (placement_.stage_of_block[b] == stage && graph_.blocks[b].reaches_loss &&
          graph_.blocks[b].state != BlockState::kF)
        return true;
    return false;
  }

  const BlockGraph& graph_;
  const Placement& placement_;
  const Schedule& schedule_;
  std::vector<std::vector<bool>> checked_;  // by rank and position
  std::string fault_;
};

}  // namespace stagecraft::testing
