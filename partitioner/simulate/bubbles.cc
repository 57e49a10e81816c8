#include "partitioner/simulate/bubbles.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

// Both sides of a message and its end.
struct MessageTimes {
  int64_t sent = 0, posted = 0, end = 0;
};

// A part of an idle time: what is waited for in it takes time itself, or is a message on its way.
struct WaitPart {
  int64_t start = 0, end = 0;
  bool is_communication = false;
};

// An idle time of a rank with one thing to wait for: a message, or (-1) the end of the step.
struct Wait {
  int64_t start = 0, end = 0;
  int message = -1;
  BubbleCause otherwise = BubbleCause::kWarmUp;  // its cause where it is not communication
  bool is_open = false;                          // while its parts are looked for
  std::optional<std::vector<WaitPart>> parts = std::nullopt;
};

// Where a rank stands in its list, for the cause of a wait that a compute action ends.
class Phases {
 public:
  explicit Phases(const std::vector<Action>& actions) {
    for (size_t i = 0; i < actions.size(); ++i) {
      const ActionKind kind = actions[i].kind;
      if (!is_compute(actions[i])) continue;
      if (!first_) first_ = i;
      if (kind == ActionKind::kForward) last_forward_ = i;
      const bool is_backward = kind == ActionKind::kBackward || kind == ActionKind::kBackwardInput;
      if (is_backward && !first_backward_) first_backward_ = i;
    }
  }
  BubbleCause before(size_t index) const {
    if (index == first_ || index == first_backward_) return BubbleCause::kWarmUp;
    return last_forward_ && index > *last_forward_ ? BubbleCause::kDrain : BubbleCause::kOtherStage;
  }

 private:
  std::optional<size_t> first_, first_backward_, last_forward_;
};

class BubbleFinder {
 public:
  BubbleFinder(const Schedule& schedule, const SimulatedStep& step)
      : schedule_(schedule),
        makespan_(step.makespan.count),
        messages_(schedule.messages.size()),
        waits_(schedule.ranks.size()) {
    size_t first = 0;
    for (const auto& actions : schedule.ranks) {
      starts_.push_back(first);
      first += actions.size();
    }
    check(first == step.actions.size(), "bubbles are looked for in another schedule's step");
    // Ends first: a rank may wait for messages of ranks that come later.
    for (size_t r = 0; r < schedule.ranks.size(); ++r) {
      for (size_t i = 0; i < schedule.ranks[r].size(); ++i) {
        const Action& action = schedule.ranks[r][i];
        const int64_t end = step.actions[starts_[r] + i].end.count;
        if (action.kind == ActionKind::kSend) times_of(action.message).end = end;
        if (end != makespan_) continue;
        if (is_message(action)) {
          last_message_ = action.message;
        } else if (is_compute(action)) {
          last_rank_ = r;
        }
      }
    }
    for (size_t r = 0; r < schedule.ranks.size(); ++r) find_waits(r, step);
  }

  std::vector<Bubble> bubbles() {
    // A wait leads to waits that end no later; in their order, none leads far.
    std::vector<Wait*> by_end;
    for (std::vector<Wait>& waits : waits_) {
      for (Wait& wait : waits) by_end.push_back(&wait);
    }
    std::ranges::stable_sort(by_end, {}, &Wait::end);
    for (Wait* wait : by_end) parts_of(*wait);
    std::vector<Bubble> out;
    for (size_t r = 0; r < waits_.size(); ++r) {
      for (Wait& wait : waits_[r]) {
        for (const WaitPart& part : parts_of(wait)) {
          add(out, {.rank = static_cast<int>(r),
                    .start = {part.start},
                    .end = {part.end},
                    .cause = part.is_communication ? BubbleCause::kCommunication : wait.otherwise});
        }
      }
    }
    return out;
  }

 private:
  static void add(std::vector<Bubble>& out, const Bubble& bubble) {
    if (!out.empty() && out.back().rank == bubble.rank && out.back().cause == bubble.cause &&
        out.back().end == bubble.start) {
      out.back().end = bubble.end;
    } else {
      out.push_back(bubble);
    }
  }

  MessageTimes& times_of(int message) { return messages_.at(static_cast<size_t>(message)); }

  // The simulator's rules once more, to learn what it does not tell: when each side came to a
  // message, and which one a rank waited for.
  void find_waits(size_t r, const SimulatedStep& step) {
    const std::vector<Action>& actions = schedule_.ranks[r];
    const Phases phases(actions);
    std::map<std::pair<Direction, int>, std::vector<int>> received;  // by micro-batch
    std::vector<int> sends;
    std::vector<Wait> open;  // since the last compute action: the next one gives their cause
    int64_t now = 0;
    const auto wait_until = [&](int64_t end, int message) {
      if (end > now) open.push_back({.start = now, .end = end, .message = message});
      now = std::max(now, end);
    };
    const auto close = [&](BubbleCause cause) {
      for (Wait& wait : open) {
        wait.otherwise = cause;
        waits_[r].push_back(std::move(wait));
      }
      open.clear();
    };
    for (size_t i = 0; i < actions.size(); ++i) {
      const Action& action = actions[i];
      const TimedAction& timed = step.actions[starts_[r] + i];
      if (action.kind == ActionKind::kReceive) {
        const Message& message = schedule_.messages.at(static_cast<size_t>(action.message));
        times_of(action.message).posted = now;
        received[{message.direction, message.micro_batch}].push_back(action.message);
      } else if (action.kind == ActionKind::kSend) {
        for (size_t s = 0; s + kSendsInFlight <= sends.size(); ++s) {
          wait_until(times_of(sends[s]).end, sends[s]);
        }
        times_of(action.message).sent = now;
        sends.push_back(action.message);
      } else if (is_compute(action)) {
        if (timed.start.count > now) {
          const Direction direction =
              action.kind == ActionKind::kForward ? Direction::kForward : Direction::kBackward;
          const auto& candidates = received[{direction, action.micro_batch}];
          const auto awaited = std::ranges::find_if(
              candidates, [&](int m) { return times_of(m).end == timed.start.count; });
          check(awaited != candidates.end(), "an action waits for no message of its schedule");
          wait_until(timed.start.count, *awaited);
        }
        close(phases.before(i));
        now = timed.end.count;
      }
    }
    wait_until(makespan_, -1);
    close(BubbleCause::kDrain);
  }

  const std::vector<WaitPart>& parts_of(Wait& wait) {
    if (wait.parts) return *wait.parts;
    check(!wait.is_open, "ranks of a simulated step wait for each other in a circle");
    wait.is_open = true;
    std::vector<WaitPart> parts;
    const int message = wait.message >= 0 ? wait.message : last_message_;
    if (wait.message < 0 && last_rank_) {
      follow(*last_rank_, wait.start, wait.end, parts);
    } else {
      check(message >= 0, "nothing ends at the end of a simulated step");
      const MessageTimes& times = times_of(message);
      const Message& ends = schedule_.messages[static_cast<size_t>(message)];
      const int64_t sent = std::clamp(times.sent, wait.start, wait.end);
      const int64_t ready = std::clamp(times.posted, sent, wait.end);
      follow(static_cast<size_t>(ends.src_rank), wait.start, sent, parts);
      follow(static_cast<size_t>(ends.dst_rank), sent, ready, parts);
      if (ready < wait.end) parts.push_back({ready, wait.end, true});
    }
    wait.parts = std::move(parts);
    return *wait.parts;
  }

  // What `rank` does in this time: it computes, or waits itself.
  void follow(size_t rank, int64_t start, int64_t end, std::vector<WaitPart>& out) {
    std::vector<Wait>& waits = waits_.at(rank);
    auto wait = std::ranges::upper_bound(waits, start, {}, &Wait::end);
    while (start < end) {
      const int64_t work_end = wait == waits.end() ? end : std::clamp(wait->start, start, end);
      if (start < work_end) out.push_back({start, work_end, false});
      start = work_end;
      if (start == end) return;
      const int64_t wait_end = std::min(wait->end, end);
      for (const WaitPart& part : parts_of(*wait)) {
        const int64_t from = std::max(part.start, start), to = std::min(part.end, wait_end);
        if (from < to) out.push_back({from, to, part.is_communication});
      }
      start = wait_end;
      ++wait;
    }
  }

  const Schedule& schedule_;
  const int64_t makespan_;
  std::vector<size_t> starts_;  // of each rank's actions in the step
  std::vector<MessageTimes> messages_;
  std::vector<std::vector<Wait>> waits_;  // by rank, ascending: all its idle time
  std::optional<size_t> last_rank_;       // computes until the end of the step
  int last_message_ = -1;                 // else what is under way until then
};

}  // namespace

std::string_view to_string(BubbleCause cause) {
  constexpr std::string_view kNames[] = {"warm-up", "other stage's work", "communication", "drain"};
  return kNames[static_cast<size_t>(cause)];
}

std::string_view key_of(BubbleCause cause) {
  constexpr std::string_view kKeys[] = {"warm_up", "other_stage", "communication", "drain"};
  return kKeys[static_cast<size_t>(cause)];
}

std::vector<Bubble> find_bubbles(const Schedule& schedule, const SimulatedStep& step) {
  return BubbleFinder(schedule, step).bubbles();
}

std::vector<BubbleSums> sum_bubbles(const std::vector<Bubble>& bubbles, size_t ranks) {
  std::vector<BubbleSums> sums(ranks);
  for (const Bubble& bubble : bubbles) {
    sums.at(static_cast<size_t>(bubble.rank))[static_cast<size_t>(bubble.cause)] +=
        bubble.end - bubble.start;
  }
  return sums;
}

}  // namespace stagecraft
