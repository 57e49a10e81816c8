#include "partitioner/schedule/unit_time.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

bool same_work(const Action& needed, const Action& action) {
  if (needed.stage != action.stage || needed.micro_batch != action.micro_batch) return false;
  if (needed.kind == action.kind) return true;
  return action.kind == ActionKind::kBackward && needed.kind == ActionKind::kBackwardInput;
}

// Compute actions that must have ended before `action` starts, those of its own rank included.
template <typename Visit>
void for_each_prerequisite(const Flow& flow, const Action& action, const Visit& visit) {
  const auto need = [&](ActionKind kind, int stage) {
    visit(Action{.kind = kind, .stage = stage, .micro_batch = action.micro_batch});
  };
  switch (action.kind) {
    case ActionKind::kForward:
      for (int stage : flow.forward_needs[action.stage]) need(ActionKind::kForward, stage);
      break;
    case ActionKind::kBackward:
    case ActionKind::kBackwardInput:
      need(ActionKind::kForward, action.stage);
      for (int stage : flow.backward_needs[action.stage]) need(ActionKind::kBackwardInput, stage);
      break;
    case ActionKind::kBackwardWeight:
      need(ActionKind::kBackwardInput, action.stage);
      break;
    case ActionKind::kSend:
    case ActionKind::kReceive:
    case ActionKind::kReduce:
    case ActionKind::kStep:
      break;
  }
}

// Ranks are stuck at `next`: follows "waits for" until a rank comes up again.
std::string describe_stuck(const Flow& flow, const std::vector<std::vector<Action>>& order,
                           const std::vector<size_t>& next, const EndTimes& ends) {
  const int ranks = static_cast<int>(order.size());
  int rank = 0;
  while (next[rank] == order[rank].size()) ++rank;
  std::string text;
  std::vector<bool> seen(ranks);
  while (!seen[rank]) {
    seen[rank] = true;
    const Action& waiting = order[rank][next[rank]];
    std::optional<Action> missing;
    for_each_prerequisite(flow, waiting, [&](const Action& needed) {
      if (!missing && ends.of(needed) == EndTimes::kUnknown) missing = needed;
    });
    check(missing.has_value(), "a stuck action waits for nothing");
    int owner = -1;
    for (int r = 0; r < ranks; ++r) {
      for (size_t i = next[r]; i < order[r].size(); ++i) {
        if (same_work(*missing, order[r][i])) owner = r;
      }
    }
    if (owner < 0) {
      return fmt::format("the order cannot run: {} on rank {} needs {}, which is in no rank's list",
                         to_string(waiting), rank, to_string(*missing));
    }
    text += fmt::format("{}rank {} waits at {} for {} of rank {}", text.empty() ? "" : ", ", rank,
                        to_string(waiting), to_string(*missing), owner);
    rank = owner;
  }
  return "the order cannot run, its ranks wait for each other: " + text;
}

}  // namespace

int64_t unit_cost(ActionKind kind) { return kind == ActionKind::kBackward ? 2 : 1; }

EndTimes::EndTimes(int stages, int micro_batches)
    : micro_batches_(micro_batches),
      times_(static_cast<size_t>(stages) * static_cast<size_t>(micro_batches) * 3, kUnknown) {}

int64_t& EndTimes::slot(ActionKind kind, const Action& action) {
  const size_t which = kind == ActionKind::kForward         ? 0
                       : kind == ActionKind::kBackwardInput ? 1
                                                            : 2;
  return times_[(static_cast<size_t>(action.stage) * static_cast<size_t>(micro_batches_) +
                 static_cast<size_t>(action.micro_batch)) *
                    3 +
                which];
}

int64_t EndTimes::of(const Action& needed) const {
  return const_cast<EndTimes*>(this)->slot(needed.kind, needed);
}

void EndTimes::set(const Action& done, int64_t end) {
  switch (done.kind) {
    case ActionKind::kBackward:
      slot(ActionKind::kBackwardInput, done) = end;
      slot(ActionKind::kBackwardWeight, done) = end;
      break;
    case ActionKind::kForward:
    case ActionKind::kBackwardInput:
    case ActionKind::kBackwardWeight:
      slot(done.kind, done) = end;
      break;
    default:
      break;
  }
}

int64_t ready_time(const Flow& flow, const EndTimes& ends, const Action& action) {
  int64_t ready = 0;
  for_each_prerequisite(flow, action, [&](const Action& needed) {
    const int64_t end = ends.of(needed);
    ready = ready == EndTimes::kUnknown || end == EndTimes::kUnknown ? EndTimes::kUnknown
                                                                     : std::max(ready, end);
  });
  return ready;
}

OrderTimes time_order(const Flow& flow, const std::vector<std::vector<Action>>& order,
                      int micro_batches) {
  const size_t ranks = order.size();
  OrderTimes times{.start = std::vector<std::vector<int64_t>>(ranks),
                   .end = std::vector<std::vector<int64_t>>(ranks)};
  EndTimes ends(static_cast<int>(flow.blocks.size()), micro_batches);
  std::vector<size_t> next(ranks);
  size_t left = 0;
  for (const auto& actions : order) left += actions.size();
  while (left > 0) {
    const size_t before = left;
    for (size_t r = 0; r < ranks; ++r) {
      for (; next[r] < order[r].size(); ++next[r], --left) {
        const Action& action = order[r][next[r]];
        const int64_t ready = ready_time(flow, ends, action);
        if (ready == EndTimes::kUnknown) break;
        const int64_t start = std::max(ready, times.end[r].empty() ? 0 : times.end[r].back());
        const int64_t end = start + unit_cost(action.kind);
        times.start[r].push_back(start);
        times.end[r].push_back(end);
        ends.set(action, end);
      }
    }
    if (left == before) throw ConfigError(describe_stuck(flow, order, next, ends));
  }
  return times;
}

}  // namespace stagecraft
