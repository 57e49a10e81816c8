#include "partitioner/simulate/step_clock.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int64_t kUnknown = -1;

// When each side of a message has come to it, and when it is through.
struct Transfer {
  int64_t sent = kUnknown, posted = kUnknown, start = kUnknown, end = kUnknown;
};

struct RankState {
  int next = 0;
  int64_t now = 0;
  std::vector<int> sends;  // posted, in order
  size_t done = 0;         // of these, sends that the rank has waited for
  int64_t done_at = 0;     // when the last of them was through
};

// The messages as they are on their way.
class Network {
 public:
  Network(const std::vector<int>& before_on_pair, const std::vector<int64_t>& transfer)
      : transfers(transfer.size()), before_on_pair_(before_on_pair), time_(transfer) {}

  // End of the message, or kUnknown while one side has not come to it.
  int64_t end_of(int id) {
    Transfer& t = transfers[id];
    if (t.end != kUnknown || t.sent == kUnknown || t.posted == kUnknown) return t.end;
    int64_t start = std::max(t.sent, t.posted);
    if (before_on_pair_[id] >= 0) {
      const int64_t free = end_of(before_on_pair_[id]);
      if (free == kUnknown) return kUnknown;
      start = std::max(start, free);
    }
    t.start = start;
    t.end = start + time_[id];
    return t.end;
  }
  // The rank's posted sends are through, but for the last `in_flight`; false while that is not
  // known.
  bool wait_for_sends(RankState& rank, size_t in_flight) {
    for (; rank.done + in_flight < rank.sends.size(); ++rank.done) {
      const int64_t end = end_of(rank.sends[rank.done]);
      if (end == kUnknown) return false;
      rank.done_at = std::max(rank.done_at, end);
    }
    rank.now = std::max(rank.now, rank.done_at);
    return true;
  }

  std::vector<Transfer> transfers;

 private:
  const std::vector<int>& before_on_pair_;
  const std::vector<int64_t>& time_;
};

}  // namespace

StepClock::StepClock(const Flow& flow, const Placement& placement, const Schedule& schedule)
    : before_on_pair_(schedule.messages.size(), -1) {
  std::map<std::tuple<Direction, int, int, int>, int> ids;
  for (size_t id = 0; id < schedule.messages.size(); ++id) {
    const Message& m = schedule.messages[id];
    ids[{m.direction, m.src_stage, m.dst_rank, m.micro_batch}] = static_cast<int>(id);
  }
  std::map<std::pair<int, int>, int> last;
  for (size_t r = 0; r < schedule.ranks.size(); ++r) {
    first_of_rank_.push_back(actions());
    for (const Action& a : schedule.ranks[r]) {
      Item item{.kind = a.kind == ActionKind::kSend      ? Kind::kSend
                        : a.kind == ActionKind::kReceive ? Kind::kReceive
                        : a.kind == ActionKind::kStep    ? Kind::kStep
                                                         : Kind::kCompute,
                .message = a.message,
                .first_need = static_cast<int>(needs_.size())};
      const bool forward = a.kind == ActionKind::kForward;
      if (forward || a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardInput) {
        for (int source : (forward ? flow.forward_needs : flow.backward_needs)[a.stage]) {
          if (placement.rank_of_stage[source] == static_cast<int>(r)) continue;
          const auto id = ids.find({forward ? Direction::kForward : Direction::kBackward, source,
                                    static_cast<int>(r), a.micro_batch});
          check(id != ids.end(), "the schedule lacks a message; verify it before it is simulated");
          needs_.push_back(id->second);
        }
      }
      item.end_need = static_cast<int>(needs_.size());
      items_.push_back(item);
      if (item.kind != Kind::kSend) continue;
      const Message& m = schedule.messages[a.message];
      const auto [entry, is_first] = last.try_emplace({m.src_rank, m.dst_rank}, a.message);
      if (!is_first) before_on_pair_[a.message] = std::exchange(entry->second, a.message);
    }
  }
  first_of_rank_.push_back(actions());
}

void StepClock::run(const std::vector<int64_t>& compute, const std::vector<int64_t>& transfer,
                    Times& times) const {
  const int ranks = static_cast<int>(first_of_rank_.size()) - 1;
  times.start.assign(items_.size(), 0);
  times.end.assign(items_.size(), 0);
  times.busy.assign(ranks, 0);
  times.makespan = 0;
  Network network(before_on_pair_, transfer);
  std::vector<RankState> states(ranks);
  // Runs one action when it can run.
  const auto advance = [&](int r) {
    RankState& rank = states[r];
    const int action = first_of_rank_[r] + rank.next;
    const Item& item = items_[action];
    int64_t start = rank.now;
    if (item.kind == Kind::kReceive) {
      network.transfers[item.message].posted = rank.now;
    } else if (item.kind != Kind::kCompute) {
      const bool is_send = item.kind == Kind::kSend;
      if (!network.wait_for_sends(rank, is_send ? kSendsInFlight - 1 : 0)) return false;
      start = rank.now;
      if (is_send) {
        network.transfers[item.message].sent = rank.now;
        rank.sends.push_back(item.message);
      }
    } else {
      for (int need = item.first_need; need < item.end_need; ++need) {
        const int64_t end = network.end_of(needs_[need]);
        if (end == kUnknown) return false;
        start = std::max(start, end);
      }
      rank.now = start + compute[action];
      times.busy[r] += compute[action];
    }
    times.start[action] = start;
    times.end[action] = rank.now;
    ++rank.next;
    return true;
  };
  for (int left = actions(); left > 0;) {
    const int before = left;
    for (int r = 0; r < ranks; ++r)
      while (first_of_rank_[r] + states[r].next < first_of_rank_[r + 1] && advance(r)) --left;
    check(left < before, "the schedule cannot run; verify it before it is simulated");
  }
  for (size_t a = 0; a < items_.size(); ++a) {
    if (items_[a].kind == Kind::kSend || items_[a].kind == Kind::kReceive) {
      check(network.end_of(items_[a].message) != kUnknown,
            "a message of the schedule has one side only");
      times.start[a] = network.transfers[items_[a].message].start;
      times.end[a] = network.transfers[items_[a].message].end;
    }
    times.makespan = std::max(times.makespan, times.end[a]);
  }
}

}  // namespace stagecraft
