#include "partitioner/solver/prefix_clock.h"

#include <algorithm>

namespace stagecraft {

PrefixClock::PrefixClock(const StageTable& table, const SplitTarget& target)
    : table_(table),
      target_(target),
      pace_(Pace::of(target.micro_batch_sizes, table.costs().micro_batch())),
      last_in_flight_(micro_batches_in_flight(target.schedule, target.stages() - 1, target.stages(),
                                              pace_.count)) {}

int64_t PrefixClock::bound(const std::vector<Stage>& stages, bool is_line, Scratch& scratch) const {
  connect(stages, is_line, scratch);
  scratch.end_ = 0;
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t s = 0; s < stages.size(); ++s)
      while (advance(stages[s], scratch.progress_[s], scratch)) moves = true;
  }
  return scratch.end_;
}

void PrefixClock::connect(const std::vector<Stage>& stages, bool is_line, Scratch& scratch) const {
  const int count = static_cast<int>(stages.size());
  const int node = table_.edge(stages.back().edge).to, last = table_.nodes() - 1;
  // The transfer, or one after the other by way of the stages between that `relays` names.
  const auto need = [&](int from, int to, int64_t bytes, const auto& relays, Need& result) {
    const int direction = from < to ? 1 : -1;
    for (int s = from + direction; s != to + direction; s += direction) {
      if (s != to && !relays(s)) continue;
      const auto time = [&](int64_t samples) {
        return transfer_between(table_, target_, stages[from].rank, stages[s].rank, bytes, samples);
      };
      result.first += time(pace_.first);
      result.last += time(pace_.last);
      from = s;
    }
  };
  const auto relays = [&](int) { return target_.relays; };
  const auto relays_back = [&](int s) { return target_.relays && stages[s].work.has_backward; };
  scratch.progress_.resize(count);
  int last_with_backward = -1;
  for (int s = 0; s < count; ++s) {
    Progress& progress = scratch.progress_[s];
    progress.in_flight =
        micro_batches_in_flight(target_.schedule, s, target_.stages(), pace_.count);
    progress.needs.clear();
    progress.gives.clear();
    progress.forward_end.clear();
    progress.backward_end.clear();
    progress.forwards = progress.backwards = progress.now = 0;
    const StageTable::Rest rest = table_.rest_after(stages[s].edge, node);
    progress.on = rest.on;
    progress.home = rest.home;
    progress.waits_for_rest = rest.gives;
    if (stages[s].work.has_backward) last_with_backward = s;
    for (int r = 0; r < s; ++r) {
      const int a = stages[r].edge, b = stages[s].edge;
      if (!table_.feeds(a, b)) continue;
      need(r, s, table_.forward_bytes(a, b), relays, progress.needs.emplace_back(Need{.stage = r}));
      if (!table_.gets_gradient(a, b)) continue;
      // Gradients of the nearest stage start here, those of further ones may wait for others'.
      std::vector<Need>& gives = scratch.progress_[r].gives;
      gives.push_back({.stage = s});
      if (gives.size() == 1) need(s, r, table_.backward_bytes(a, b), relays_back, gives.front());
    }
  }
  if (is_line && last_with_backward >= 0) {
    Progress& progress = scratch.progress_[last_with_backward];
    progress.waits_for_rest = true;
    progress.on = table_.least_forward(last) - table_.least_forward(node);
    progress.home = table_.least_backward(last) - table_.least_backward(node);
  }
}

// Runs the next action of a stage's list when it can run.
bool PrefixClock::advance(const Stage& stage, Progress& progress, Scratch& scratch) const {
  const int64_t m = pace_.count;
  const bool is_forward =
      progress.forwards < m &&
      (!stage.work.has_backward || progress.forwards < progress.backwards + progress.in_flight);
  const int64_t j = is_forward ? progress.forwards : progress.backwards;
  if (j == m || (!is_forward && !stage.work.has_backward)) return false;
  const bool is_last = j + 1 == m;
  int64_t start = progress.now;
  for (const Need& need : is_forward ? progress.needs : progress.gives) {
    const Progress& other = scratch.progress_[need.stage];
    const std::vector<int64_t>& ends = is_forward ? other.forward_end : other.backward_end;
    if (static_cast<int64_t>(ends.size()) <= j) return false;
    start = std::max(start, ends[j] + (is_last ? need.last : need.first));
  }
  const auto scaled = [&](int64_t time, int64_t micro_batch) {
    return micro_batch + 1 == m ? pace_.floor_last(time) : pace_.floor_first(time);
  };
  if (is_forward) {
    progress.now = start + (is_last ? stage.work.last_forward : stage.work.first_forward);
    progress.forward_end.push_back(progress.now);
    ++progress.forwards;
    if (!stage.work.has_backward)
      scratch.end_ =
          std::max(scratch.end_, progress.now + scaled(progress.on, j) + scaled(progress.home, j));
    return true;
  }
  if (progress.waits_for_rest) {
    // The last stage runs so many forwards before this backward, GPipe's all of them.
    const int64_t before = std::min(m, j + last_in_flight_) - 1;
    start = std::max(start, progress.forward_end[before] + scaled(progress.on, before) +
                                scaled(progress.home, j));
  }
  progress.now = start + (is_last ? stage.work.last_backward : stage.work.first_backward);
  progress.backward_end.push_back(progress.now);
  ++progress.backwards;
  scratch.end_ = std::max(scratch.end_, progress.now);
  return true;
}

}  // namespace stagecraft
