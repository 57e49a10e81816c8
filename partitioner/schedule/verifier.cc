#include "partitioner/schedule/verifier.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/machines.h"
#include "partitioner/schedule/replay.h"

namespace stagecraft {
namespace {

constexpr size_t kMostFaults = 100;

const char* name_of(Direction direction) {
  return direction == Direction::kForward ? "forward" : "backward";
}

class Verification {
 public:
  Verification(const BlockGraph& graph, const Placement& placement,
               const std::vector<int64_t>& sizes, const Schedule& schedule)
      : graph_(graph),
        placement_(placement),
        sizes_(sizes),
        schedule_(schedule),
        flow_(derive_flow(graph, placement)) {}

  std::vector<std::string> run(const VerifierOptions& options) {
    check_ranges();
    if (!faults_.empty()) return std::move(faults_);  // what follows would read out of range
    check_coverage();
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      check_ends(r);
      check_dependencies(r);
    }
    check_table();
    if (check_pairing()) {
      check_pair_order();
      check_machines();
    }
    if (faults_.empty() && !options.memory_caps.empty()) check_memory(options);
    return std::move(faults_);
  }

 private:
  template <typename... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    if (faults_.size() == kMostFaults) return;
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  int stages() const { return placement_.stages(); }
  int micro_batches() const { return static_cast<int>(sizes_.size()); }

  void check_ranges() {
    const int ranks = placement_.ranks();
    if (static_cast<int>(schedule_.ranks.size()) != ranks) {
      return fault("the schedule has {} lists, but the plan has {} ranks", schedule_.ranks.size(),
                   ranks);
    }
    for (size_t id = 0; id < schedule_.messages.size(); ++id) {
      const Message& m = schedule_.messages[id];
      auto in = [](int i, size_t n) { return i >= 0 && static_cast<size_t>(i) < n; };
      bool fine = in(m.src_rank, ranks) && in(m.dst_rank, ranks) && in(m.src_stage, stages()) &&
                  in(m.dst_stage, stages()) && in(m.micro_batch, sizes_.size());
      for (const MessageItem& item : m.items) fine = fine && in(item.value, graph_.values.size());
      if (!fine) fault("message {}: a rank, stage, micro-batch or value that does not exist", id);
    }
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (const Action& a : schedule_.ranks[r]) {
        if (is_message(a) &&
            (a.message < 0 || a.message >= static_cast<int>(schedule_.messages.size()))) {
          fault("rank {}: {} names message {}, there are {}", r, to_string(a), a.message,
                schedule_.messages.size());
        }
        if (is_compute(a) && (a.stage < 0 || a.stage >= stages() || a.micro_batch < 0 ||
                              a.micro_batch >= micro_batches())) {
          fault("rank {}: {} is outside {} stages and {} micro-batches", r, to_string(a), stages(),
                micro_batches());
        }
        if (a.step_offset != 0 || a.replica != 0) {
          fault("rank {}: {} has step offset {} and replica {}; only 0 is supported", r,
                to_string(a), a.step_offset, a.replica);
        }
      }
    }
  }

  void check_coverage() {
    std::map<std::tuple<ActionKind, int, int>, int> times;
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (const Action& a : schedule_.ranks[r]) {
        if (!is_compute(a)) continue;
        ++times[{a.kind, a.stage, a.micro_batch}];
        if (placement_.rank_of_stage[a.stage] != static_cast<int>(r)) {
          fault("rank {}: {} belongs to rank {}, which hosts stage {}", r, to_string(a),
                placement_.rank_of_stage[a.stage], a.stage);
        }
      }
    }
    auto expect = [&](ActionKind kind, int stage, int j, int expected) {
      const auto found = times.find({kind, stage, j});
      const int count = found == times.end() ? 0 : found->second;
      if (count == expected) return;
      const std::string text = to_string(Action{.kind = kind, .stage = stage, .micro_batch = j});
      if (expected == 1) {
        fault("{} runs {} times, it must run once", text, count);
      } else {
        fault("{} must not run: stage {} {}", text, stage,
              flow_.has_backward[stage] ? "runs B or I and W, not both" : "has no gradients");
      }
    };
    for (int s = 0; s < stages(); ++s) {
      for (int j = 0; j < micro_batches(); ++j) {
        const bool split = times.contains({ActionKind::kBackwardInput, s, j}) ||
                           times.contains({ActionKind::kBackwardWeight, s, j});
        const bool whole = times.contains({ActionKind::kBackward, s, j});
        const bool backward = flow_.has_backward[s];
        expect(ActionKind::kForward, s, j, 1);
        expect(ActionKind::kBackward, s, j, backward && (whole || !split));
        expect(ActionKind::kBackwardInput, s, j, backward && split && !whole);
        expect(ActionKind::kBackwardWeight, s, j, backward && split && !whole);
      }
    }
  }

  // Ascending backwards, one step at the end, nothing to reduce before the last backward.
  void check_ends(size_t rank) {
    const auto& actions = schedule_.ranks[rank];
    std::map<std::pair<ActionKind, int>, Action> last;  // (I or W, stage); B does both
    int steps = 0;
    bool reduced = false;
    for (const Action& a : actions) {
      steps += a.kind == ActionKind::kStep;
      reduced = reduced || a.kind == ActionKind::kReduce;
      if (!is_compute(a)) continue;
      if (reduced) fault("rank {}: {} stands after reduce", rank, to_string(a));
      if (a.kind == ActionKind::kForward) continue;
      const Action* before = nullptr;
      for (const ActionKind part : {ActionKind::kBackwardInput, ActionKind::kBackwardWeight}) {
        if (a.kind != part && a.kind != ActionKind::kBackward) continue;
        Action& newest = last.try_emplace({part, a.stage}, a).first->second;
        if (newest.micro_batch > a.micro_batch) {
          before = &newest;
        } else {
          newest = a;
        }
      }
      if (before != nullptr) {
        fault("rank {}: {} stands after {}; gradients are summed in ascending micro-batch", rank,
              to_string(a), to_string(*before));
      }
    }
    if (steps != 1) fault("rank {}: {} optimizer steps, there must be one", rank, steps);
    if (steps > 0 && actions.back().kind != ActionKind::kStep) {
      fault("rank {}: {} stands after the optimizer step", rank, to_string(actions.back()));
    }
  }

  void check_dependencies(size_t rank) {
    using Work = std::tuple<ActionKind, int, int>;         // I stands for B too
    using Arrival = std::tuple<Direction, int, int, int>;  // source stage, value, micro-batch
    std::set<Work> done;
    std::set<Arrival> arrived;
    for (const Action& a : schedule_.ranks[rank]) {
      auto need = [&](ActionKind kind, int stage) {
        if (!done.contains({kind, stage, a.micro_batch})) {
          fault("rank {}: {} needs {}, which does not stand before it", rank, to_string(a),
                to_string(Action{.kind = kind, .stage = stage, .micro_batch = a.micro_batch}));
        }
      };
      auto need_hops = [&](Direction direction, ActionKind kind) {
        for (const Hop& hop : direction == Direction::kForward ? flow_.forward : flow_.backward) {
          if (hop.to_stage != a.stage) continue;
          if (placement_.rank_of_stage[hop.from_stage] == static_cast<int>(rank)) {
            need(kind, hop.from_stage);
          } else if (!arrived.contains({direction, hop.from_stage, hop.value, a.micro_batch})) {
            fault("rank {}: {} needs {}{} of stage {}, which is not received before it", rank,
                  to_string(a), direction == Direction::kForward ? "" : "the gradient of ",
                  graph_.values[hop.value].name, hop.from_stage);
          }
        }
      };
      switch (a.kind) {
        case ActionKind::kForward:
          need_hops(Direction::kForward, ActionKind::kForward);
          done.emplace(ActionKind::kForward, a.stage, a.micro_batch);
          break;
        case ActionKind::kBackward:
        case ActionKind::kBackwardInput:
          need(ActionKind::kForward, a.stage);
          need_hops(Direction::kBackward, ActionKind::kBackwardInput);
          done.emplace(ActionKind::kBackwardInput, a.stage, a.micro_batch);
          break;
        case ActionKind::kBackwardWeight:
          need(ActionKind::kBackwardInput, a.stage);
          break;
        case ActionKind::kReceive: {
          const Message& m = schedule_.messages[a.message];
          for (const MessageItem& item : m.items) {
            arrived.emplace(m.direction, m.src_stage, item.value, m.micro_batch);
          }
          break;
        }
        case ActionKind::kSend: {
          const Message& m = schedule_.messages[a.message];
          const ActionKind producer = m.direction == Direction::kForward
                                          ? ActionKind::kForward
                                          : ActionKind::kBackwardInput;
          if (!done.contains({producer, m.src_stage, m.micro_batch})) {
            fault("rank {}: {} sends what {}{}.{} has not computed before it", rank, to_string(a),
                  m.direction == Direction::kForward ? 'F' : 'B', m.src_stage, m.micro_batch);
          }
          break;
        }
        case ActionKind::kReduce:
        case ActionKind::kStep:
          break;
      }
    }
  }

  void check_table() {
    const std::vector<Message> expected = message_table(graph_, placement_, sizes_);
    if (expected.size() != schedule_.messages.size()) {
      fault("the table has {} messages, graph and placement need {}", schedule_.messages.size(),
            expected.size());
    }
    for (size_t id = 0; id < std::min(expected.size(), schedule_.messages.size()); ++id) {
      const Message& is = schedule_.messages[id];
      const Message& must = expected[id];
      if (is == must) continue;
      auto text = [&](const Message& m) {
        std::string values;
        for (const MessageItem& item : m.items) {
          const Value& value = graph_.values[item.value];
          values += fmt::format(" {} ({})", value.name, to_string(value.dtype));
        }
        return fmt::format(
            "{} stage {} (rank {}) to stage {} (rank {}), micro-batch {}, {} bytes:{}",
            name_of(m.direction), m.src_stage, m.src_rank, m.dst_stage, m.dst_rank, m.micro_batch,
            m.bytes.count, values);
      };
      fault("message {} is {}; it must be {}", id, text(is), text(must));
    }
  }

  // One S and one R of every message, each on its rank. Otherwise machines have nothing to match.
  bool check_pairing() {
    const size_t before = faults_.size();
    std::vector<int> sends(schedule_.messages.size()), receives(schedule_.messages.size());
    for (size_t r = 0; r < schedule_.ranks.size(); ++r) {
      for (const Action& a : schedule_.ranks[r]) {
        if (!is_message(a)) continue;
        const Message& m = schedule_.messages[a.message];
        const bool is_send = a.kind == ActionKind::kSend;
        ++(is_send ? sends : receives)[a.message];
        const int owner = is_send ? m.src_rank : m.dst_rank;
        if (owner != static_cast<int>(r)) {
          fault("rank {}: {} belongs to rank {}", r, to_string(a), owner);
        }
        if (a.stage != (is_send ? m.src_stage : m.dst_stage) || a.micro_batch != m.micro_batch) {
          fault(
              "rank {}: {} says stage {}, micro-batch {}, but message {} has stage {}, micro-batch "
              "{}",
              r, to_string(a), a.stage, a.micro_batch, a.message,
              is_send ? m.src_stage : m.dst_stage, m.micro_batch);
        }
      }
    }
    for (size_t id = 0; id < sends.size(); ++id) {
      if (sends[id] == 1 && receives[id] == 1) continue;
      fault("message {} is sent {} times and received {} times, it must be once each", id,
            sends[id], receives[id]);
    }
    return faults_.size() == before;
  }

  void check_pair_order() {
    std::map<std::pair<int, int>, std::array<std::vector<int>, 2>> pairs;
    for (const auto& actions : schedule_.ranks) {
      for (const Action& a : actions) {
        if (!is_message(a)) continue;
        const Message& m = schedule_.messages[a.message];
        pairs[{m.src_rank, m.dst_rank}][a.kind == ActionKind::kReceive].push_back(a.message);
      }
    }
    for (const auto& [pair, both] : pairs) {
      const auto [sent, received] = std::mismatch(both[0].begin(), both[0].end(), both[1].begin());
      if (sent == both[0].end()) continue;
      fault(
          "rank {} sends S{} to rank {} where it receives R{}: without tags both sides need one "
          "order",
          pair.first, *sent, pair.second, *received);
    }
  }

  void check_machines() {
    constexpr std::pair<Machine, const char*> kMachines[] = {
        {Machine::kQueue, "one queue per rank"},
        {Machine::kIndependentGroups, "independent messages in a group"},
        {Machine::kAtomicGroups, "groups starting as one"}};
    for (auto [machine, name] : kMachines) {
      const std::string cycle = run_machine(machine, schedule_);
      if (!cycle.empty()) fault("deadlock without buffers, {}: {}", name, cycle);
    }
  }

  void check_memory(const VerifierOptions& options) {
    for (int r = 0; r < static_cast<int>(schedule_.ranks.size()); ++r) {
      const InFlightPeak peak =
          replay_in_flight(flow_, schedule_, r, options.saved_bytes_of_stage, sizes_);
      const Bytes cap =
          r < static_cast<int>(options.memory_caps.size()) ? options.memory_caps[r] : Bytes{};
      if (peak.bytes <= cap) continue;
      fault("rank {}: {} bytes in flight at {}, the plan allows {}", r, peak.bytes.count,
            to_string(schedule_.ranks[r][peak.index]), cap.count);
    }
  }

  const BlockGraph& graph_;
  const Placement& placement_;
  const std::vector<int64_t>& sizes_;
  const Schedule& schedule_;
  const Flow flow_;
  std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify(const BlockGraph& graph, const Placement& placement,
                                const std::vector<int64_t>& micro_batch_sizes,
                                const Schedule& schedule, const VerifierOptions& options) {
  return Verification(graph, placement, micro_batch_sizes, schedule).run(options);
}

}  // namespace stagecraft
