#include "partitioner/solver/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/solver/infeasible.h"
#include "partitioner/solver/leanest.h"
#include "partitioner/solver/target.h"

namespace stagecraft {
namespace {

constexpr int kSweepSteps = 12;             // caps between the fastest and the leanest split
constexpr int64_t kNodesOfSweep = 150'000;  // of one of these searches

// All splits of one shape (stages, schedule, micro-batch) that are worth having.
class Sweep {
 public:
  Sweep(const StageTable& table, const SplitTarget& target, const SolverOptions& options)
      : table_(table), target_(target), options_(options) {}

  // `whole`: the front, else the fastest only.
  std::vector<Solution> run(bool whole) const {
    SearchResult fastest = search_step(table_, target_, options_.limits);
    if (!fastest.best) return {};
    std::vector<Solution> found;
    const Bytes most = fastest.best->peak();
    const Nanos shortest = fastest.best->step.makespan;
    found.push_back(solution_of(table_, std::move(*fastest.best), fastest.bound));
    if (!whole) return found;
    const Bytes least = leanest_split(table_, lean_target()).split.peak();
    for (int i = 1; i <= kSweepSteps && least < most; ++i) {
      SplitTarget capped = target_;
      const Bytes cap{most.count - (most.count - least.count) * i / kSweepSteps};
      if (found.back().peak() <= cap) continue;
      for (Device& device : capped.cluster.devices) device.memory = std::min(device.memory, cap);
      SearchLimits limits = options_.limits;
      limits.nodes = std::min(limits.nodes, kNodesOfSweep);
      SearchResult leaner = search_step(table_, capped, limits);
      if (!leaner.best) break;
      // What is proven for all splits is proven for these.
      found.push_back(solution_of(table_, std::move(*leaner.best), fastest.bound));
    }
    lean_ties(found, shortest);
    return found;
  }

 private:
  // Every cap as low as that of the smallest device: what is leanest there is the least peak.
  SplitTarget lean_target() const {
    SplitTarget target = target_;
    for (Device& device : target.cluster.devices) device.memory = Bytes{0};
    return target;
  }

  // Among steps as short as the shortest the leanest, to a hundredth of the peak.
  void lean_ties(std::vector<Solution>& found, Nanos shortest) const {
    while (found.size() > 1 && found[1].step.makespan == shortest) found.erase(found.begin());
    int64_t fits = found.front().peak().count;
    int64_t fails = found.size() > 1 ? found[1].peak().count : 0;
    const Nanos bound = found.front().proven_bound;
    while (fits - fails > fits / 100 + 1) {
      const Bytes cap{(fits + fails) / 2};
      SplitTarget capped = target_;
      for (Device& device : capped.cluster.devices) device.memory = std::min(device.memory, cap);
      SearchResult result =
          search_step(table_, capped, {.nodes = kNodesOfSweep, .longest_step = shortest});
      if (result.best) {
        fits = result.best->peak().count;
        found.front() = solution_of(table_, std::move(*result.best), bound.count);
      } else {
        fails = cap.count;
      }
    }
  }

  const StageTable& table_;
  const SplitTarget& target_;
  const SolverOptions& options_;
};

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

void choose(Front& front, Preference preference) {
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
    front.reason = "no other plan is faster or leaner";
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
  std::string why_not;
  for (const ClusterCosts& costs : request.costs) {
    const StageTable table(graph, costs);
    const int most = std::min(devices, table.searched_units());
    for (const std::string& schedule : request.schedules) {
      SolverOptions options = request.options;
      options.schedule = schedule;
      options.micro_batch = costs.micro_batch();
      const bool any_stages = options.stages == 0 && options.memory_caps.empty();
      for (int stages = options.stages == 0 ? most : options.stages; stages >= 1; --stages) {
        options.stages = stages;
        const SplitTarget target = target_of(table, cluster, options);
        // Fewer stages and other schedules are worth their fastest split only: none is leaner.
        const bool whole = (stages == most || !any_stages) && schedule == request.schedules.front();
        for (Solution& solution : Sweep(table, target, options).run(whole))
          plans.push_back({.solution = std::move(solution),
                           .schedule = schedule,
                           .micro_batch = costs.micro_batch()});
        if (plans.empty() && why_not.empty()) why_not = explain_infeasible(table, target, options);
        if (!any_stages) break;
      }
    }
  }
  if (plans.empty()) throw ResourceError(why_not);
  Front front{.plans = without_beaten(std::move(plans)), .chosen = 0, .reason = {}};
  choose(front, request.preference);
  return front;
}

}  // namespace stagecraft
