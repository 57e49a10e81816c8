#include "partitioner/simulate/simulator.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/simulate/costs.h"

namespace stagecraft {
namespace {

struct StageParts {
  int64_t forward = 0, backward_input = 0, backward_weight = 0;
};

StageParts sum_parts(const BlockGraph& graph, const Placement& placement, const BlockCosts& costs,
                     const std::vector<int>& blocks) {
  StageParts sum;
  for (int b : blocks) {
    const BlockCost& cost = *costs[b];
    sum.forward += cost.forward.median.count;
    if (graph.blocks[b].state == BlockState::kF) continue;
    sum.backward_input += cost.backward_input.median.count;
    sum.backward_weight += cost.backward_weight.median.count;
    if (placement.recompute[b]) sum.backward_input += cost.forward.median.count;
  }
  return sum;
}

// One message on its way: when each side has come to it, and when it is through.
struct Transfer {
  std::optional<int64_t> sent, posted, start, end;
};

class Simulation {
 public:
  Simulation(const Flow& flow, const Placement& placement, const Cluster& cluster,
             const Schedule& schedule)
      : flow_(flow),
        placement_(placement),
        cluster_(cluster),
        schedule_(schedule),
        transfers_(schedule.messages.size()),
        before_on_pair_(schedule.messages.size(), -1),
        ranks_(schedule.ranks.size()) {
    for (size_t id = 0; id < schedule.messages.size(); ++id) {
      const Message& m = schedule.messages[id];
      ids_[{m.direction, m.src_stage, m.dst_rank, m.micro_batch}] = static_cast<int>(id);
    }
    std::map<std::pair<int, int>, int> last;
    for (const auto& actions : schedule.ranks) {
      for (const Action& a : actions) {
        if (a.kind != ActionKind::kSend) continue;
        const Message& m = schedule.messages[a.message];
        const auto [entry, first] = last.try_emplace({m.src_rank, m.dst_rank}, a.message);
        if (!first) before_on_pair_[a.message] = std::exchange(entry->second, a.message);
      }
    }
  }

  // `duration(action)` is the compute time of an action.
  template <typename Duration>
  SimulatedStep run(const Duration& duration) {
    size_t left = 0;
    for (const auto& actions : schedule_.ranks) left += actions.size();
    while (left > 0) {
      const size_t before = left;
      for (size_t r = 0; r < ranks_.size(); ++r) {
        while (ranks_[r].next < schedule_.ranks[r].size() && advance(static_cast<int>(r), duration))
          --left;
      }
      check(left < before, "the schedule cannot run; verify it before it is simulated");
    }
    return result();
  }

 private:
  struct Rank {
    size_t next = 0;
    int64_t now = 0, busy = 0;
    std::vector<int> sends;  // posted, in order
    std::vector<std::pair<int64_t, int64_t>>
        compute;  // start and end by index; messages have their own
  };

  // End of the message, or nothing while one side has not come to it.
  std::optional<int64_t> end_of(int id) {
    Transfer& t = transfers_[id];
    if (t.end || !t.sent || !t.posted) return t.end;
    int64_t start = std::max(*t.sent, *t.posted);
    if (before_on_pair_[id] >= 0) {
      const std::optional<int64_t> free = end_of(before_on_pair_[id]);
      if (!free) return std::nullopt;
      start = std::max(start, *free);
    }
    const Message& message = schedule_.messages[id];
    const Link& link = cluster_.between(message.src_rank, message.dst_rank);
    check(link.bandwidth > 0, "a link of the cluster has no bandwidth");
    t.start = start;
    t.end = start + link.latency.count +
            std::llround(1e9 * static_cast<double>(message.bytes.count) / link.bandwidth);
    return t.end;
  }

  // Latest arrival of what `action` needs from other ranks, or nothing while it is not known.
  std::optional<int64_t> arrival(int rank, const Action& action) {
    const bool forward = action.kind == ActionKind::kForward;
    if (!forward && action.kind != ActionKind::kBackward &&
        action.kind != ActionKind::kBackwardInput) {
      return 0;
    }
    int64_t latest = 0;
    for (int source : (forward ? flow_.forward_needs : flow_.backward_needs)[action.stage]) {
      if (placement_.rank_of_stage[source] == rank) continue;
      const auto id = ids_.find(
          {forward ? Direction::kForward : Direction::kBackward, source, rank, action.micro_batch});
      check(id != ids_.end(), "the schedule lacks a message; verify it before it is simulated");
      const std::optional<int64_t> end = end_of(id->second);
      if (!end) return std::nullopt;
      latest = std::max(latest, *end);
    }
    return latest;
  }

  // Latest end of the rank's posted sends but for the last `in_flight`.
  std::optional<int64_t> sends_done(const Rank& rank, size_t in_flight) {
    int64_t latest = 0;
    for (size_t i = 0; i + in_flight < rank.sends.size(); ++i) {
      const std::optional<int64_t> end = end_of(rank.sends[i]);
      if (!end) return std::nullopt;
      latest = std::max(latest, *end);
    }
    return latest;
  }

  template <typename Duration>
  bool advance(int r, const Duration& duration) {
    Rank& rank = ranks_[r];
    const Action& action = schedule_.ranks[r][rank.next];
    int64_t start = rank.now, end = rank.now;
    if (action.kind == ActionKind::kReceive) {
      transfers_[action.message].posted = rank.now;
    } else if (action.kind == ActionKind::kSend || action.kind == ActionKind::kStep) {
      const bool is_send = action.kind == ActionKind::kSend;
      const std::optional<int64_t> done = sends_done(rank, is_send ? kSendsInFlight - 1 : 0);
      if (!done) return false;
      start = end = rank.now = std::max(rank.now, *done);
      if (is_send) {
        transfers_[action.message].sent = rank.now;
        rank.sends.push_back(action.message);
      }
    } else {
      const std::optional<int64_t> ready = arrival(r, action);
      if (!ready) return false;
      start = std::max(rank.now, *ready);
      const int64_t time = duration(action);
      end = rank.now = start + time;
      rank.busy += time;
    }
    rank.compute.emplace_back(start, end);
    ++rank.next;
    return true;
  }

  SimulatedStep result() {
    SimulatedStep step;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      step.busy.push_back({ranks_[r].busy});
      for (size_t i = 0; i < schedule_.ranks[r].size(); ++i) {
        auto [start, end] = ranks_[r].compute[i];
        const Action& action = schedule_.ranks[r][i];
        if (action.kind == ActionKind::kSend || action.kind == ActionKind::kReceive) {
          check(end_of(action.message).has_value(), "a message of the schedule has one side only");
          start = *transfers_[action.message].start;
          end = *transfers_[action.message].end;
        }
        step.makespan = std::max(step.makespan, Nanos{end});
        step.actions.push_back({.rank = static_cast<int>(r),
                                .index = static_cast<int>(i),
                                .start = {start},
                                .end = {end}});
      }
    }
    return step;
  }

  const Flow& flow_;
  const Placement& placement_;
  const Cluster& cluster_;
  const Schedule& schedule_;
  std::map<std::tuple<Direction, int, int, int>, int> ids_;
  std::vector<Transfer> transfers_;
  std::vector<int>
      before_on_pair_;  // the message that goes before on the same directed pair, or -1
  std::vector<Rank> ranks_;
};

}  // namespace

double SimulatedStep::bubble() const {
  if (makespan.count == 0 || busy.empty()) return 0;
  double sum = 0;
  for (Nanos b : busy) sum += static_cast<double>(b.count);
  return 1 - sum / (static_cast<double>(busy.size()) * static_cast<double>(makespan.count));
}

SimulatedStep simulate(const BlockGraph& graph, const Placement& placement,
                       const ClusterCosts& costs, const Cluster& cluster, const Schedule& schedule,
                       const std::vector<int64_t>& micro_batch_sizes) {
  const Flow flow = derive_flow(graph, placement);
  const std::vector<BlockCosts> by_kind = block_costs_by_kind(graph, costs);
  std::vector<StageParts> parts;
  for (int s = 0; s < placement.stages(); ++s) {
    const int kind = costs.kind_of_rank(placement.rank_of_stage[s]);
    parts.push_back(sum_parts(graph, placement, by_kind[kind], flow.blocks[s]));
  }
  return Simulation(flow, placement, cluster, schedule).run([&](const Action& action) -> int64_t {
    const StageParts& part = parts[action.stage];
    const int64_t samples = micro_batch_sizes[action.micro_batch];
    switch (action.kind) {
      case ActionKind::kForward:
        return scale_to(part.forward, samples, costs.micro_batch());
      case ActionKind::kBackwardInput:
        return scale_to(part.backward_input, samples, costs.micro_batch());
      case ActionKind::kBackwardWeight:
        return scale_to(part.backward_weight, samples, costs.micro_batch());
      case ActionKind::kBackward:
        return scale_to(part.backward_input + part.backward_weight, samples, costs.micro_batch());
      default:
        return 0;
    }
  });
}

}  // namespace stagecraft
