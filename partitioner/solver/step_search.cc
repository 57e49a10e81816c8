#include "partitioner/solver/step_search.h"

#include <tbb/parallel_for.h>

#include <algorithm>
#include <tuple>

#include "partitioner/base/sorted.h"
#include "partitioner/solver/chain_steps.h"
#include "partitioner/solver/chain_walk.h"
#include "partitioner/solver/completion.h"
#include "partitioner/solver/prefix_clock.h"

namespace stagecraft {
namespace {

constexpr size_t kTasksPerRound = 32;
constexpr size_t kBeamWidth = 96;  // beginnings of each length that the first splits come from
constexpr size_t kForwardsOfBeam = 40'000;  // of all complete chains that are timed
constexpr size_t kWalks = 8;                // of each shape, from the best of them
constexpr int kPhases = 3;                  // each goes on from the best of all before
constexpr size_t kMaxOpen = 400'000;  // beginnings that wait; behind that the search goes deep
constexpr int64_t kMinNodesOfTask = 1'000, kMaxNodesOfTask = 100'000;
constexpr int64_t kMostRounds = 8;     // micro-batches by stages: with more, formulas say as much
constexpr int64_t kNodesOfSplit = 25;  // of making a chain exact, by forwards,
constexpr int64_t kNodesOfReruns = 8000;  // and of finding what runs again

// The beginning of a chain, and what is known of every chain that begins so.
struct Beginning {
  std::vector<int> edges{}, classes{};
  int node = 0, used = 0;
  Shape shape = Shape::kLine;
  int last_with_gradient = -1;  // stage
  int64_t bound = 0;
  // Of a line: forward times and transfers up to here, of the first and the last micro-batch; the
  // same backward; and what the stages say of the whole step, each by its formula (step_bound.h).
  int64_t forward_first = 0, forward_last = 0, backward_first = 0, backward_last = 0;
  int64_t at_least = 0, with_last = 0, with_first = 0;
  // Of anything else: by stage, the longest way there and back.
  std::vector<int64_t> way_to{}, way_back{};

  int stages() const { return static_cast<int>(edges.size()); }
  auto order() const { return std::tie(bound, shape, edges, classes); }
};

struct Later {
  bool operator()(const Beginning& a, const Beginning& b) const { return a.order() > b.order(); }
};

bool is_better(const Split& a, const Split& b) {
  const auto key = [](const Split& s) {
    return std::make_tuple(s.step.makespan, s.peak(), std::cref(s.chain.edges),
                           std::cref(s.chain.ranks));
  };
  return key(a) < key(b);
}

class Search {
 public:
  Search(const StageTable& table, const SplitTarget& target)
      : table_(table),
        target_(target),
        options_(table, target),
        completion_(table, target, options_),
        pace_(completion_.pace()),
        steps_(table, target),
        prefix_(table, target),
        stages_(target.stages()),
        nodes_of_step_(stages_ * stages_ * pace_.count / 8),
        nodes_of_split_(std::max<int64_t>(400, kNodesOfSplit * stages_ * pace_.count)),
        class_of_rank_(stages_) {
    for (size_t c = 0; c < options_.classes().size(); ++c)
      for (const int rank : options_.classes()[c].ranks) class_of_rank_[rank] = static_cast<int>(c);
  }

  // One thread's part: what it was given to do, what it found, what it left open.
  struct Task {
    const Split* shortest() const { return best ? &*best : known; }
    int64_t limit() const { return shortest() ? shortest()->step.makespan.count : longest; }

    const Split* known = nullptr;  // from before
    std::optional<Split> best{};   // better than that
    std::vector<Beginning> open{};
    int64_t nodes = 0;
    bool goes_deep = false;
    int64_t most_nodes = kMaxNodesOfTask;
    int64_t longest = kNever;   // of no interest from here on
    int64_t given_up = kNever;  // the shortest step that a chain could have had that was not tried
    std::vector<PrefixClock::Stage> prefix{};
    PrefixClock::Scratch scratch{};
  };

  SearchResult run(const SearchLimits& limits) {
    limits_ = limits;
    SearchResult result;
    const int64_t longest = limits.longest_step ? limits.longest_step->count + 1 : kNever;
    Task first{.longest = longest};
    std::vector<Beginning> open;
    for (const Shape shape : {Shape::kLine, Shape::kBranchLater}) {
      Beginning root{.shape = shape, .bound = completion_.of(shape, 0, 0)};
      if (root.bound < kNever) open.push_back(std::move(root));
    }
    if (!open.empty()) find_first(limits.nodes, first);
    std::optional<Split> best = std::move(first.best);
    result.nodes = first.nodes;
    std::ranges::make_heap(open, Later{});
    int64_t given_up = first.given_up;
    const auto limit = [&] { return best ? best->step.makespan.count : longest; };
    const auto is_over = [&] {
      return result.nodes > limits.nodes || is_late() ||
             (limits.enough && limit() < kNever && open.front().bound >= limits.enough->count);
    };
    while (!open.empty() && open.front().bound < limit() && !is_over()) {
      std::vector<Beginning> round;
      while (round.size() < kTasksPerRound && !open.empty() && open.front().bound < limit()) {
        std::ranges::pop_heap(open, Later{});
        round.push_back(std::move(open.back()));
        open.pop_back();
      }
      const int64_t share = (limits.nodes - result.nodes) / std::ssize(round);
      std::vector<Task> tasks;
      for (size_t i = 0; i < round.size(); ++i) {
        tasks.push_back({.known = best ? &*best : nullptr,
                         .goes_deep = open.size() > kMaxOpen,
                         .most_nodes = std::clamp(share, kMinNodesOfTask, kMaxNodesOfTask),
                         .longest = longest});
      }
      tbb::parallel_for(size_t{0}, round.size(), [&](size_t i) { go_on(round[i], tasks[i]); });
      for (Task& task : tasks)
        if (task.best && (!best || is_better(*task.best, *best))) best = std::move(task.best);
      for (Task& task : tasks) {
        result.nodes += task.nodes;
        given_up = std::min(given_up, task.given_up);
        for (Beginning& beginning : task.open) {
          open.push_back(std::move(beginning));
          std::ranges::push_heap(open, Later{});
        }
      }
    }
    const bool is_proven = open.empty() || open.front().bound >= limit();
    result.is_complete = is_proven && given_up >= limit();
    result.bound = std::min(given_up, is_proven ? limit() : open.front().bound);
    result.best = std::move(best);
    return result;
  }

 private:
  // First splits: complete chains by taking the best few beginnings of each length, of each shape,
  // and walks from the best of them.
  void find_first(int64_t nodes, Task& task) {
    std::vector<TimedChain> starts;
    for (const Shape shape : {Shape::kLine, Shape::kBranchLater}) {
      std::vector<TimedChain> complete = chains_of_beam(shape, task);
      std::ranges::sort(complete);
      if (complete.size() > kWalks) complete.resize(kWalks);
      std::ranges::move(complete, std::back_inserter(starts));
    }
    // The walks take at most half of all nodes. Most moves are dropped by a bound.
    const int64_t nodes_of_move = std::max<int64_t>(1, nodes_of_step_ / 4);
    const int64_t moves =
        std::clamp<int64_t>(nodes / (4 * kPhases * static_cast<int64_t>(kWalks)) / nodes_of_move, 0,
                            10 * stages_ * stages_);
    const ChainWalk walk(table_, class_of_rank_, [&](const Chain& chain, int64_t limit) {
      return is_late() ? kNever : step_of(chain, limit);
    });
    if (starts.empty()) return;
    std::vector<TimedChain> found = starts;
    for (int phase = 0; phase < kPhases; ++phase) {
      std::vector<TimedChain> walked(starts.size());
      tbb::parallel_for(size_t{0}, starts.size(), [&](size_t i) {
        walked[i] = walk.best_from(starts[i], static_cast<int>(moves), phase * starts.size() + i);
      });
      task.nodes += static_cast<int64_t>(starts.size()) * moves * nodes_of_move;
      std::ranges::move(walked, std::back_inserter(found));
      sort_and_unique(found);
      for (size_t i = 0; i < starts.size(); ++i) starts[i] = found[i / 2 % found.size()];
    }
    for (const auto& [step, chain] : found)
      if (step < task.limit() && !is_late()) try_split(chain, task);
  }
  std::vector<TimedChain> chains_of_beam(Shape shape, Task& task) {
    std::vector<Beginning> beam{{.shape = shape, .bound = completion_.of(shape, 0, 0)}};
    std::vector<TimedChain> complete;
    if (beam.front().bound >= kNever) return complete;
    for (int s = 0; s + 1 < stages_; ++s) {
      std::vector<Beginning> next;
      for (const Beginning& beginning : beam)
        for_each_next(beginning, kNever, task,
                      [&](Beginning&& longer) { next.push_back(std::move(longer)); });
      std::ranges::sort(
          next, [](const Beginning& a, const Beginning& b) { return a.order() < b.order(); });
      if (next.size() > kBeamWidth) next.resize(kBeamWidth);
      beam = std::move(next);
    }
    // Long steps take long to time: of fewer chains then, those with the lowest bounds.
    const auto most = std::clamp<size_t>(kForwardsOfBeam / (stages_ * pace_.count), 4, kBeamWidth);
    for (const Beginning& beginning : beam)
      for_each_next(beginning, kNever, task, [&](const Beginning& whole) {
        if (complete.size() < most) complete.push_back({.step = kNever, .chain = chain_of(whole)});
      });
    tbb::parallel_for(size_t{0}, complete.size(),
                      [&](size_t i) { complete[i].step = step_of(complete[i].chain); });
    task.nodes += static_cast<int64_t>(complete.size()) * nodes_of_step_;
    std::erase_if(complete, [](const TimedChain& chain) { return chain.step >= kNever; });
    return complete;
  }

  // Exact when nothing need run again, else never more than that; kNever when some stage may not
  // stand where it does. At `limit` or above a lower bound.
  int64_t step_of(const Chain& chain, int64_t limit = kNever) const {
    std::vector<int64_t> more;
    for (int s = 0; s < stages_; ++s) {
      const int c = class_of_rank_[chain.ranks[s]];
      more.push_back(options_.backward_more(s, c, chain.edges[s]));
      if (more.back() == StageOptions::kForbidden) return kNever;
      const int64_t bound = completion_.of_stage(s, c, chain.edges[s]);
      if (bound >= limit) return bound;
    }
    return steps_.step(chain, more);
  }

  // Everything that begins so: short beginnings are left open, the last stages are tried here.
  void go_on(const Beginning& beginning, Task& task) {
    for_each_next(beginning, task.limit(), task, [&](Beginning&& longer) {
      if (longer.bound >= task.limit()) return;
      if (longer.stages() > 1 && longer.stages() < stages_ &&
          pace_.count <= kMostRounds * stages_) {
        longer.bound = std::max(longer.bound, prefix_bound(longer, task));
        if (longer.bound >= task.limit()) return;
      }
      if (longer.stages() == stages_) {
        try_whole(chain_of(longer), task);
      } else if (task.nodes > task.most_nodes || is_late() ||
                 (stages_ - longer.stages() > 2 && !task.goes_deep)) {
        task.open.push_back(std::move(longer));
      } else {
        go_on(longer, task);
      }
    });
  }

  int64_t prefix_bound(const Beginning& beginning, Task& task) const {
    task.prefix.clear();
    for (int s = 0; s < beginning.stages(); ++s)
      task.prefix.push_back(
          {.edge = beginning.edges[s],
           .rank = rank_of(beginning, s),
           .work = completion_.work(s, beginning.classes[s], beginning.edges[s])});
    return prefix_.bound(task.prefix, beginning.shape == Shape::kLine, task.scratch);
  }

  void try_whole(const Chain& chain, Task& task) const {
    task.nodes += nodes_of_step_;
    const int64_t step = step_of(chain, task.limit());
    if (step >= task.limit()) return;
    // What runs again is chosen by density, and takes longer than the bound says: not worth making
    // when that is too long. A better choice may exist, which is not looked for.
    if (is_late() || likely_step_of(chain) >= task.limit()) {
      task.given_up = std::min(task.given_up, step);
      return;
    }
    try_split(chain, task);
  }

  // With the blocks running again that would be chosen by the stages' bounds; 0 when that is as the
  // bound has it, or all choices are tried anyway.
  int64_t likely_step_of(const Chain& chain) const {
    bool differs = false;
    std::vector<int64_t> more;
    for (int s = 0; s < stages_; ++s) {
      const int c = class_of_rank_[chain.ranks[s]];
      more.push_back(options_.backward_more(s, c, chain.edges[s]));
      if (more.back() == 0) continue;
      const int64_t likely = options_.likely_more(s, c, chain.edges[s]);
      differs = differs || likely > more.back();
      more.back() = std::max(more.back(), likely);
    }
    return differs ? steps_.step(chain, more) : 0;
  }

  void try_split(const Chain& chain, Task& task) const {
    task.nodes += nodes_of_split_;
    Split split = make_split(table_, target_, chain);
    if (!split.is_exact)  // another choice of what runs again might be shorter, or fit
      task.given_up = std::min(task.given_up, step_of(chain));
    if (std::ranges::count(split.placement.recompute, true) > 0) task.nodes += kNodesOfReruns;
    if (split.excess(target_) > 0 || split.step.makespan.count >= task.longest) return;
    if (!task.shortest() || is_better(split, *task.shortest())) task.best = std::move(split);
  }

  // Ranks of a class are taken in ascending order.
  Chain chain_of(const Beginning& whole) const {
    Chain chain{.edges = whole.edges, .ranks = {}};
    std::vector<size_t> taken(options_.classes().size(), 0);
    for (int c : whole.classes) chain.ranks.push_back(options_.classes()[c].ranks[taken[c]++]);
    return chain;
  }
  int rank_of(const Beginning& beginning, int stage) const {
    const int c = beginning.classes[stage];
    const auto before = std::count(beginning.classes.begin(), beginning.classes.begin() + stage, c);
    return options_.classes()[c].ranks[before];
  }

  template <typename Visit>
  void for_each_next(const Beginning& beginning, int64_t limit, Task& task, const Visit& visit) {
    const int s = beginning.stages(), last = table_.nodes() - 1;
    const int from = s + 1 == stages_ ? table_.find_edge(beginning.node, last)
                                      : table_.first_edge(beginning.node);
    const int end = s + 1 == stages_ ? from + 1 : table_.end_edge(beginning.node);
    if (from < 0) return;
    for (int e = from; e < end; ++e) {
      ++task.nodes;
      for (int c = 0; c < static_cast<int>(options_.classes().size()); ++c) {
        const int used = completion_.devices().with(beginning.used, c);
        if (used < 0 || options_.backward_more(s, c, e) == StageOptions::kForbidden) continue;
        const Shape shape = shape_with(beginning, e);
        if (beginning.shape == Shape::kLine && shape != Shape::kLine) continue;
        const int64_t rest = completion_.of(shape, used, table_.edge(e).to);
        if (rest >= limit) continue;
        Beginning longer = beginning;
        longer.shape = shape;
        longer.used = used;
        longer.node = table_.edge(e).to;
        longer.edges.push_back(e);
        longer.classes.push_back(c);
        const StageWork work = completion_.work(s, c, e);
        if (shape == Shape::kLine) {
          extend_line(longer, e, work);
        } else {
          extend_branched(longer, e, work);
        }
        if (longer.bound < limit) visit(std::move(longer));
      }
    }
  }

  // A line that goes on as one has itself, and what branches later is searched from its twin.
  Shape shape_with(const Beginning& beginning, int e) const {
    if (beginning.shape == Shape::kBranched || beginning.edges.empty()) return beginning.shape;
    const bool follows = table_.feeds(beginning.edges.back(), e) &&
                         (beginning.last_with_gradient < 0 || !table_.has_backward(e) ||
                          table_.gets_gradient(beginning.edges[beginning.last_with_gradient], e));
    if (beginning.shape == Shape::kLine) return follows ? Shape::kLine : Shape::kBranched;
    return follows ? Shape::kBranchLater : Shape::kBranched;
  }

  int64_t transfer(int from_rank, int to_rank, int64_t bytes, int64_t samples) const {
    return transfer_between(table_, target_, from_rank, to_rank, bytes, samples);
  }

  void extend_line(Beginning& b, int e, const StageWork& work) const {
    const int s = b.stages() - 1;
    const int rank = rank_of(b, s);
    if (s > 0) {
      const int before = rank_of(b, s - 1);
      const int64_t bytes = table_.forward_bytes(b.edges[s - 1], e);
      b.forward_first += transfer(before, rank, bytes, pace_.first);
      b.forward_last += transfer(before, rank, bytes, pace_.last);
    }
    if (work.has_backward && b.last_with_gradient >= 0) {
      const int before = rank_of(b, b.last_with_gradient);
      const int64_t bytes = table_.backward_bytes(b.edges[b.last_with_gradient], e);
      b.backward_first += transfer(rank, before, bytes, pace_.first);
      b.backward_last += transfer(rank, before, bytes, pace_.last);
    }
    b.with_last = std::max(b.with_last, b.forward_first + work.until_last - b.forward_last);
    if (work.has_backward) {
      b.at_least = std::max(b.at_least, b.forward_first + work.all + b.backward_last);
      b.with_first = std::max(b.with_first, work.after_first + b.backward_last - b.backward_first);
      b.last_with_gradient = s;
    }
    b.forward_first += work.first_forward;
    b.forward_last += work.last_forward;
    b.backward_first += work.first_backward;
    b.backward_last += work.last_backward;

    const int last = table_.nodes() - 1;
    const int64_t forward = table_.least_forward(last) - table_.least_forward(b.node);
    const int64_t backward = table_.least_backward(last) - table_.least_backward(b.node);
    const int64_t longer_ways = b.forward_first - pace_.floor_first(table_.least_forward(b.node)) +
                                b.backward_last - pace_.floor_last(table_.least_backward(b.node));
    b.bound = std::max({b.bound, b.at_least,
                        b.with_last + b.forward_last + pace_.floor_last(forward) + b.backward_last +
                            pace_.floor_last(backward),
                        b.with_first + b.forward_first + pace_.floor_first(forward) +
                            b.backward_first + pace_.floor_first(backward)});
    if (b.stages() < stages_)
      b.bound = std::max(b.bound, completion_.of(Shape::kLine, b.used, b.node) + longer_ways);
  }

  void extend_branched(Beginning& b, int e, const StageWork& work) const {
    const int s = b.stages() - 1;
    int64_t to = 0, back = 0;
    for (int r = 0; r < s; ++r) {
      if (table_.feeds(b.edges[r], e)) to = std::max(to, b.way_to[r]);
      if (table_.gets_gradient(b.edges[r], e)) back = std::max(back, b.way_back[r]);
    }
    int64_t bound = to + work.until_last + work.last_forward + pace_.floor_last(table_.way_on(e));
    if (work.has_backward) {
      bound += pace_.floor_last(table_.way_home(e)) + work.last_backward + back;
      bound = std::max({bound, to + work.all + back,
                        to + work.first_forward + pace_.floor_first(table_.way_on(e)) +
                            pace_.floor_first(table_.way_home(e)) + work.first_backward +
                            work.after_first + back});
      b.last_with_gradient = s;
    }
    b.way_to.push_back(to + work.first_forward);
    b.way_back.push_back(back + work.last_backward);
    b.bound = std::max(b.bound, bound);
    if (b.stages() < stages_) b.bound = std::max(b.bound, completion_.of(b.shape, b.used, b.node));
  }

  bool is_late() const { return limits_.is_over(); }

  SearchLimits limits_;
  const StageTable& table_;
  const SplitTarget& target_;
  const StageOptions options_;
  const Completion completion_;
  const Pace pace_;
  const ChainSteps steps_;
  const PrefixClock prefix_;
  const int stages_;
  const int64_t nodes_of_step_, nodes_of_split_;  // what timing a chain, making it exact counts for
  std::vector<int> class_of_rank_;
};

}  // namespace

SearchLimits SearchLimits::part(int64_t most_nodes) const {
  SearchLimits result = *this;
  result.nodes = std::min(nodes, most_nodes);
  const auto now = Clock::now();
  if (deadline && *deadline > now) result.deadline = now + (*deadline - now) / 2;
  return result;
}

SearchResult search_step(const StageTable& table, const SplitTarget& target,
                         const SearchLimits& limits) {
  return Search(table, target).run(limits);
}

SearchResult search_transfers(const StageTable& table, const SplitTarget& target,
                              const SearchLimits& limits) {
  const std::vector<SplitTarget> ways = both_transfers(target);
  SearchLimits straight = ways.size() == 1 ? limits : limits.part(limits.nodes);
  straight.enough.reset();
  SearchResult result = search_step(table, ways.front(), straight);
  if (ways.size() == 1) return result;
  SearchLimits shorter = limits;
  if (result.best) shorter.longest_step = Nanos{result.best->step.makespan.count - 1};
  shorter.enough = Nanos{result.bound};
  if (limits.enough) shorter.enough = std::min(*shorter.enough, *limits.enough);
  SearchResult relayed = search_step(table, ways.back(), shorter);
  if (relayed.best) {
    result.straight = std::move(result.best);
    result.best = std::move(relayed.best);
  }
  result.bound = std::min(result.bound, relayed.bound);
  result.is_complete = result.is_complete && relayed.is_complete;
  result.nodes += relayed.nodes;
  return result;
}

}  // namespace stagecraft
