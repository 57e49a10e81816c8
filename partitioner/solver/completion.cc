#include "partitioner/solver/completion.h"

#include <tbb/parallel_for.h>

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/schedule/schedule.h"

namespace stagecraft {

UsedDevices::UsedDevices(const StageOptions& options, int stages) {
  int states = stages + 1;
  if (options.any_order()) {
    states = 1;
    for (const DeviceClass& c : options.classes()) {
      weight_.push_back(states);
      count_.push_back(static_cast<int>(c.ranks.size()));
      states *= count_.back() + 1;
    }
  }
  for (int state = 0; state < states; ++state) {
    int sum = weight_.empty() ? state : 0;
    for (int c = 0; c < static_cast<int>(weight_.size()); ++c) sum += used(state, c);
    stage_.push_back(sum);
  }
}

int UsedDevices::used(int state, int device_class) const {
  if (weight_.empty()) return device_class < state ? 1 : 0;
  return state / weight_[device_class] % (count_[device_class] + 1);
}

int UsedDevices::with(int state, int device_class) const {
  if (weight_.empty()) return device_class == state ? state + 1 : -1;
  return used(state, device_class) < count_[device_class] ? state + weight_[device_class] : -1;
}

Completion::Completion(const StageTable& table, const SplitTarget& target,
                       const StageOptions& options)
    : table_(table),
      target_(target),
      options_(options),
      pace_(Pace::of(target.micro_batch_sizes, table.costs().micro_batch())),
      devices_(options, target.stages()),
      nodes_(table.nodes()) {
  const int p = target.stages(), classes = static_cast<int>(options.classes().size());
  for (auto& best : best_) best.assign(static_cast<size_t>(devices_.states()) * nodes_, kNever);
  std::vector<std::vector<int>> states(p + 1);
  for (int used = 0; used < devices_.states(); ++used) states[devices_.stage(used)].push_back(used);
  const int last = nodes_ - 1;
  for (int used : states[p]) {
    best_[static_cast<int>(Shape::kLine)][static_cast<size_t>(used) * nodes_ + last] = 0;
    best_[static_cast<int>(Shape::kBranched)][static_cast<size_t>(used) * nodes_ + last] = 0;
  }
  for (int s = p - 1; s >= 0; --s)
    tbb::parallel_for(0, nodes_, [&](int a) {
      for (int c = 0; c < classes; ++c)
        for (int e = table.first_edge(a); e < table.end_edge(a); ++e) {
          if (options.backward_more(s, c, e) == StageOptions::kForbidden) continue;
          const StageWork w = work(s, c, e);
          const StageTable::Edge& edge = table.edge(e);
          const int64_t line = line_bound(edge, w), branch = branch_bound(e, w);
          const bool follows = table.surely_follows(e);
          for (int used : states[s]) {
            const int next = devices_.with(used, c);
            if (next < 0) continue;
            const auto rest = [&](Shape shape) { return of(shape, next, edge.to); };
            const auto improve = [&](Shape shape, int64_t bound) {
              int64_t& best =
                  best_[static_cast<int>(shape)][static_cast<size_t>(used) * nodes_ + a];
              best = std::min(best, bound);
            };
            improve(Shape::kLine, std::max(line, rest(Shape::kLine)));
            improve(Shape::kBranched, std::max(branch, rest(Shape::kBranched)));
            const int64_t later =
                std::min(rest(Shape::kBranchLater), follows ? kNever : rest(Shape::kBranched));
            improve(Shape::kBranchLater, std::max(branch, later));
          }
        }
    });
}

StageWork Completion::work(int stage, int device_class, int e) const {
  const StageCost& cost = table_.cost(options_.classes()[device_class].kind, e);
  return stage_work(pace_,
                    micro_batches_in_flight(target_.schedule, stage, target_.stages(), pace_.count),
                    cost.forward, cost.backward + options_.backward_more(stage, device_class, e),
                    table_.has_backward(e));
}

int64_t Completion::line_bound(const StageTable::Edge& edge, const StageWork& work) const {
  const auto rest = [&](int64_t (StageTable::*sum)(int) const) {
    return (table_.*sum)(nodes_ - 1) - (table_.*sum)(edge.to);
  };
  const int64_t forward = rest(&StageTable::least_forward);
  const int64_t backward = rest(&StageTable::least_backward);
  const int64_t way = pace_.floor_first(table_.least_forward(edge.from)) +
                      pace_.floor_last(table_.least_backward(edge.from));
  int64_t bound = way + work.until_last + work.last_forward + pace_.floor_last(forward) +
                  pace_.floor_last(backward) + work.last_backward;
  if (!work.has_backward) return bound;
  bound = std::max(bound, way + work.all);
  return std::max(bound, way + work.first_forward + pace_.floor_first(forward) +
                             pace_.floor_first(backward) + work.first_backward + work.after_first);
}

int64_t Completion::branch_bound(int e, const StageWork& work) const {
  const int64_t forward = table_.way_on(e), backward = table_.way_home(e);
  const int64_t to = pace_.floor_first(table_.way_to(e));
  int64_t bound = to + work.until_last + work.last_forward + pace_.floor_last(forward);
  if (!work.has_backward) return bound;
  const int64_t back = pace_.floor_last(table_.way_back(e));
  bound += pace_.floor_last(backward) + work.last_backward + back;
  bound = std::max(bound, to + work.all + back);
  return std::max(bound, to + work.first_forward + pace_.floor_first(forward) +
                             pace_.floor_first(backward) + work.first_backward + work.after_first +
                             back);
}

}  // namespace stagecraft
