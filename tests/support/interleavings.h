// Runs a small schedule in every possible interleaving: an oracle for the verifier that shares no
// code with it.
//
// Ranks work through their lists one action at a time; a send and its receive happen together when
// both are next. What an action may use is followed item by item from the graph's edges, not from
// the message table.
#pragma once

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft::testing {

class Interleavings {
 public:
  Interleavings(const BlockGraph& graph, const Placement& placement, const Schedule& schedule)
      : graph_(graph), placement_(placement), schedule_(schedule) {}

  // Empty when every interleaving reaches the end with each input at hand; otherwise what went
  // wrong in one.
  std::string explore() {
    std::vector<std::vector<size_t>> open = {std::vector<size_t>(schedule_.ranks.size(), 0)};
    std::set<std::vector<size_t>> seen = {open[0]};
    while (!open.empty()) {
      const std::vector<size_t> at = open.back();
      open.pop_back();
      const auto next = successors(at);
      if (!fault_.empty()) return fault_;
      if (next.empty() && !finished(at)) return "stuck";
      for (const auto& state : next) {
        if (seen.insert(state).second) open.push_back(state);
      }
    }
    return "";
  }

 private:
  bool finished(const std::vector<size_t>& at) const {
    for (size_t r = 0; r < at.size(); ++r) {
      if (at[r] < schedule_.ranks[r].size()) return false;
    }
    return true;
  }

  std::vector<std::vector<size_t>> successors(const std::vector<size_t>& at) {
    std::vector<std::vector<size_t>> next;
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
        ++state[peer];
      }
      check_inputs(r, at[r], action);
      next.push_back(state);
    }
    return next;
  }

  // In rank r's list before position `end`: some F or B (or I) of this stage and micro-batch.
  bool ran(size_t r, size_t end, bool forward, int stage, int j) const {
    for (size_t i = 0; i < end; ++i) {
      const Action& a = schedule_.ranks[r][i];
      if (a.stage != stage || a.micro_batch != j) continue;
      if (forward ? a.kind == ActionKind::kForward : a.kind == ActionKind::kBackward) return true;
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

  void need(bool holds, const Action& action, const char* what) {
    if (!holds) fault_ = to_string(action) + " lacks " + what;
  }

  void check_inputs(size_t r, size_t end, const Action& a) {
    if (a.kind == ActionKind::kSend) {
      const Message& m = schedule_.messages[a.message];
      need(ran(r, end, m.direction == Direction::kForward, m.src_stage, m.micro_batch), a,
           "what it sends");
    }
    if (a.kind == ActionKind::kForward) {
      for (size_t b = 0; b < graph_.blocks.size(); ++b) {
        if (placement_.stage_of_block[b] != a.stage || !graph_.blocks[b].reaches_loss) continue;
        for (int v : graph_.blocks[b].inputs) {
          const int producer = graph_.values[v].producer;
          const int from = producer < 0 ? -1 : placement_.stage_of_block[producer];
          if (from < 0 || from == a.stage) continue;
          need(placement_.rank_of_stage[from] == static_cast<int>(r)
                   ? ran(r, end, true, from, a.micro_batch)
                   : received(r, end, Direction::kForward, from, v, a.micro_batch),
               a, "an input");
        }
      }
    }
    if (a.kind == ActionKind::kBackward) {
      need(ran(r, end, true, a.stage, a.micro_batch), a, "its forward");
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
        if (!here || before < 0) continue;
        need(placement_.rank_of_stage[before] == static_cast<int>(r)
                 ? ran(r, end, false, before, a.micro_batch)
                 : received(r, end, Direction::kBackward, before, static_cast<int>(v),
                            a.micro_batch),
             a, "a gradient");
      }
    }
  }

  const BlockGraph& graph_;
  const Placement& placement_;
  const Schedule& schedule_;
  std::string fault_;
};

}  // namespace stagecraft::testing
