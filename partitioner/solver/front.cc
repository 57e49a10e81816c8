#include "partitioner/solver/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/solver/infeasible.h"
#include "partitioner/solver/leanest.h"
#include "partitioner/solver/step_bound.h"
#include "partitioner/solver/target.h"
#include "partitioner/solver/units.h"

namespace stagecraft {
namespace {

constexpr int kSweepSteps = 12;                 // caps between the fastest and the leanest split
constexpr int64_t kNodesOfSweep = 150'000;      // of one of these searches
constexpr int64_t kNodesOfLeanest = 600'000;    // of the last of them
constexpr int64_t kNodesOfOther = 1'500'000;    // of fewer stages, or another schedule
constexpr int64_t kNodesOfOthers = 25'000'000;  // of all these together
constexpr int64_t kLeastOfOther = 50'000;
constexpr int64_t kLeanestRoom = 200;  // part of the least peak that the leanest plan may be above
constexpr int kMostStages = 16;        // that are tried unless asked for
// A fastest split of another shape is refined unless a plan is better in step and peak by this
// factor: moving single blocks does not gain a tenth.
constexpr double kFarBeaten = 1.1;

// What was found of a shape: the search for its fastest split proved `bound` with `nodes`.
struct Swept {
  std::vector<Solution> solutions;
  int64_t bound = 0, nodes = 0;
};

// All splits of one shape (stages, schedule, micro-batch) that are worth having.
class Sweep {
 public:
  Sweep(const StageTable& table, const SplitTarget& target, const SolverOptions& options)
      : table_(table), target_(target), options_(options) {}

  // `whole`: the front, else the fastest only, which gets `nodes`, and nothing when one of `plans`
  // beats it by far. A bound above `enough` is of no use.
  Swept run(bool whole, int64_t nodes, Nanos enough, const std::vector<FrontPlan>& plans) const {
    const SearchLimits& limits = options_.limits;
    SearchLimits of_fastest = limits.part(nodes);
    of_fastest.enough = enough;
    SearchResult fastest = find_split(table_, target_, of_fastest);
    Swept swept{.solutions = {}, .bound = fastest.bound, .nodes = fastest.nodes};
    if (!fastest.best) return swept;
    if (!whole && is_far_beaten(*fastest.best, plans)) return swept;
    const Bytes most = fastest.best->peak();
    const bool relays = fastest.best->placement.relays;  // so do the leaner ones
    std::vector<Split> found;
    found.push_back(std::move(*fastest.best));
    if (whole && !limits.is_over()) {
      Split leanest = leanest_split(table_, capped(Bytes{}, relays)).split;
      // What runs again in the very leanest split is more than pays: a little more room, too.
      const Bytes least = leanest.peak(), lowest{least.count + least.count / kLeanestRoom};
      for (int i = 1; i <= kSweepSteps && lowest < most; ++i) {
        const int64_t step = (most.count - lowest.count) / kSweepSteps;
        const Bytes cap{i == kSweepSteps ? lowest.count : most.count - step * i};
        if (found.back().peak() <= cap) continue;
        if (limits.is_over()) break;
        const int64_t most_nodes = i == kSweepSteps ? kNodesOfLeanest : kNodesOfSweep;
        SearchResult leaner = search_step(table_, capped(cap, relays), limits.part(most_nodes));
        if (!leaner.best) break;
        found.push_back(std::move(*leaner.best));
      }
      if (found.back().peak() > lowest && leanest.excess(target_) <= 0)
        found.push_back(std::move(leanest));
      lean_ties(found);
    }
    std::vector<Solution>& solutions = swept.solutions;
    for (Split& split : found) {
      // Refined, only the fastest may become fuller than it was.
      const SplitTarget target = solutions.empty() ? target_ : capped(split.peak(), relays);
      solutions.push_back(solution_of(table_, target, std::move(split), fastest.bound, limits));
    }
    if (fastest.straight)
      solutions.push_back(
          solution_of(table_, target_, std::move(*fastest.straight), fastest.bound, limits));
    return swept;
  }

 private:
  static bool is_far_beaten(const Split& split, const std::vector<FrontPlan>& plans) {
    const auto is_far = [](int64_t better, int64_t worse) {
      return static_cast<double>(better) * kFarBeaten <= static_cast<double>(worse);
    };
    return std::ranges::any_of(plans, [&](const FrontPlan& plan) {
      return is_far(plan.solution.step.makespan.count, split.step.makespan.count) &&
             is_far(plan.solution.peak().count, split.peak().count);
    });
  }

  // No device has more than `cap`. (Without any memory, what is above it least has the least peak.)
  SplitTarget capped(Bytes cap, bool relays) const {
    SplitTarget target = target_;
    target.relays = relays;
    for (Device& device : target.cluster.devices) device.memory = std::min(device.memory, cap);
    return target;
  }

  // Among steps as short as the shortest the leanest, to a hundredth of the peak.
  void lean_ties(std::vector<Split>& found) const {
    const Nanos shortest = found.front().step.makespan;
    const bool relays = found.front().placement.relays;
    while (found.size() > 1 && found[1].step.makespan == shortest) found.erase(found.begin());
    int64_t fits = found.front().peak().count;
    int64_t fails = found.size() > 1 ? found[1].peak().count : 0;
    while (fits - fails > fits / 100 + 1 && !options_.limits.is_over()) {
      const Bytes cap{(fits + fails) / 2};
      SearchLimits limits = options_.limits.part(kNodesOfSweep);
      limits.longest_step = shortest;
      SearchResult result = search_step(table_, capped(cap, relays), limits);
      if (result.best) {
        fits = result.best->peak().count;
        found.front() = std::move(*result.best);
      } else {
        fails = cap.count;
      }
    }
  }

  const StageTable& table_;
  const SplitTarget& target_;
  const SolverOptions& options_;
};

// No step is shorter than a stage's part of all that is computed, nanoseconds.
int64_t least_step(const StageTable& table, const SplitTarget& target) {
  const Pace pace = Pace::of(target.micro_batch_sizes, table.costs().micro_batch());
  const int whole = table.nodes() - 1;
  const int64_t work = table.least_forward(whole) + table.least_backward(whole);
  return ((pace.count - 1) * pace.floor_first(work) + pace.floor_last(work)) / target.stages();
}

int64_t shortest_of(const std::vector<FrontPlan>& plans) {
  return std::ranges::min(plans, {},
                          [](const FrontPlan& plan) { return plan.solution.step.makespan; })
      .solution.step.makespan.count;
}

// Step up, peak down.
std::vector<FrontPlan> without_beaten(std::vector<FrontPlan> plans) {
  std::ranges::stable_sort(plans, [](const FrontPlan& a, const FrontPlan& b) {
    return std::make_pair(a.solution.step.makespan, a.solution.peak()) <
           std::make_pair(b.solution.step.makespan, b.solution.peak());
  });
  std::vector<FrontPlan> front;
  for (FrontPlan& plan : plans)
    if (front.empty() || plan.solution.peak() < front.back().solution.peak())
      front.push_back(std::move(plan));
  return front;
}

void choose(Front& front, Preference preference, bool is_cut_short) {
  const auto step = [&](size_t i) { return front.plans[i].solution.step.makespan; };
  const auto peak = [&](size_t i) { return front.plans[i].solution.peak(); };
  if (preference == Preference::kMemory) front.chosen = front.plans.size() - 1;
  if (preference == Preference::kBalanced)
    while (front.chosen + 1 < front.plans.size() &&
           static_cast<double>(step(front.chosen + 1).count) <=
               kBalancedSlowdown * static_cast<double>(step(0).count))
      ++front.chosen;
  const size_t chosen = front.chosen;
  const auto slower = [&](size_t i) {
    return 100.0 * (static_cast<double>(step(i).count) / static_cast<double>(step(0).count) - 1);
  };
  if (front.plans.size() == 1) {
    front.reason = is_cut_short ? "the only plan found in the time given"
                                : "no other plan is faster or leaner";
  } else if (chosen == 0) {
    front.reason = fmt::format(
        "the fastest of {} plans; the leanest needs {} less on the fullest rank and is {:.0f} % "
        "slower",
        front.plans.size(), mib_text(peak(0) - peak(front.plans.size() - 1)),
        slower(front.plans.size() - 1));
  } else {
    front.reason = fmt::format(
        "of {} plans {}: {:.1f} % slower than the fastest, and {} less on the fullest rank",
        front.plans.size(),
        preference == Preference::kMemory
            ? "the leanest"
            : fmt::format("the leanest within {:.0f} % of the fastest",
                          100 * (kBalancedSlowdown - 1)),
        slower(chosen), mib_text(peak(0) - peak(chosen)));
  }
}

// What a search is of; the schedule and the costs are the request's.
struct SearchShape {
  const ClusterCosts* costs = nullptr;
  const std::string* schedule = nullptr;
  int stages = 1;
  bool whole = false;  // a front is looked for, of the others the fastest split only
};

// Those of the same costs one after another, the most stages first. Throws ConfigError.
std::vector<SearchShape> shapes_of(const BlockGraph& graph, const FrontRequest& request,
                                   int devices) {
  int fewest = 1;  // stages, for a fixed block's rank to have one
  for (const auto& [block, rank] : request.options.fixed) {
    if (rank < 0 || rank >= devices)
      throw ConfigError(fmt::format("block {} is fixed to rank {}, but ranks are 0 to {}",
                                    graph.blocks.at(block).name, rank, devices - 1));
    fewest = std::max(fewest, rank + 1);
  }
  const bool any_stages = request.options.stages == 0 && request.options.memory_caps.empty();
  const int units = static_cast<int>(glue(graph).blocks.size());
  const int most = request.options.stages == 0 ? std::min({devices, units, kMostStages})
                                               : request.options.stages;
  std::vector<SearchShape> shapes;
  for (const ClusterCosts& costs : request.costs)
    for (const std::string& schedule : request.schedules)
      for (int stages = most; stages >= (any_stages ? std::min(fewest, most) : most); --stages)
        shapes.push_back({.costs = &costs,
                          .schedule = &schedule,
                          .stages = stages,
                          .whole = stages == most && schedule == request.schedules.front()});
  return shapes;
}

}  // namespace

Preference parse_preference(const std::string& text) {
  if (text == "time") return Preference::kTime;
  if (text == "balanced") return Preference::kBalanced;
  if (text == "memory") return Preference::kMemory;
  throw ConfigError(
      fmt::format("preference \"{}\" is unknown; allowed are time, balanced, memory", text));
}

Front find_front(const BlockGraph& graph, const Cluster& cluster, const FrontRequest& request) {
  check(!request.costs.empty() && !request.schedules.empty(), "a front of no shapes");
  const int devices = static_cast<int>(cluster.devices.size());
  std::vector<FrontPlan> plans;
  int64_t bound = std::numeric_limits<int64_t>::max();
  const auto options_of = [&](const SearchShape& shape) {
    SolverOptions options = request.options;
    options.schedule = *shape.schedule;
    options.micro_batch = shape.costs->micro_batch();
    options.stages = shape.stages;
    return options;
  };
  const std::vector<SearchShape> shapes = shapes_of(graph, request, devices);
  // What one of the others leaves goes to those after it; each may search twice (search_transfers).
  int64_t spent = 0, others = std::ranges::count(shapes, false, &SearchShape::whole);
  std::optional<StageTable> table;
  for (const SearchShape& shape : shapes) {
    if (!table || &table->costs() != shape.costs) table.emplace(graph, *shape.costs);
    const SolverOptions options = options_of(shape);
    const SplitTarget target = target_of(*table, cluster, options);
    const int64_t nodes =
        shape.whole ? options.limits.nodes
                    : std::clamp((kNodesOfOthers - spent) / (2 * std::max<int64_t>(1, others--)),
                                 kLeastOfOther, kNodesOfOther);
    if (options.limits.is_over() && !plans.empty()) {
      const int64_t least = least_step(*table, target);
      if (least >= shortest_of(plans)) {
        bound = std::min(bound, least);
        continue;
      }
    }
    Swept swept = Sweep(*table, target, options).run(shape.whole, nodes, Nanos{bound}, plans);
    bound = std::min(bound, swept.bound);
    if (!shape.whole) spent += swept.nodes;
    for (Solution& solution : swept.solutions)
      plans.push_back({.solution = std::move(solution),
                       .schedule = *shape.schedule,
                       .micro_batch = shape.costs->micro_batch()});
  }
  if (plans.empty()) {
    const SolverOptions options = options_of(shapes.front());
    table.emplace(graph, *shapes.front().costs);
    throw ResourceError(explain_infeasible(*table, target_of(*table, cluster, options), options));
  }
  Front front{.plans = without_beaten(std::move(plans)), .chosen = 0, .reason = {}};
  // What is proven of all shapes together.
  for (FrontPlan& plan : front.plans)
    plan.solution.proven_bound =
        Nanos{std::min(bound, front.plans.front().solution.step.makespan.count)};
  choose(front, request.preference, request.options.limits.is_over());
  return front;
}

}  // namespace stagecraft
