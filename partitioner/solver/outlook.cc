#include "partitioner/solver/outlook.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "partitioner/base/format.h"
#include "partitioner/solver/stage_table.h"

namespace stagecraft {
namespace {

constexpr int64_t kNodesOfOutlook = 500'000;

std::string change_text(Bytes now, Bytes then) {
  const std::string change = mib_text(then > now ? then - now : now - then);
  if (change == mib_text(Bytes{})) return "as much";
  return fmt::format("{} {}", change, then > now ? "more" : "less");
}

int64_t reruns_of(const FrontPlan& plan) {
  return std::ranges::count(plan.solution.placement.recompute, true);
}

class Outlook {
 public:
  Outlook(const BlockGraph& graph, const Cluster& cluster, const FrontRequest& request,
          const Front& front)
      : graph_(graph),
        cluster_(cluster),
        request_(request),
        front_(front),
        chosen_(front.plans[front.chosen]),
        costs_(*std::ranges::find(request.costs, chosen_.micro_batch, &ClusterCosts::micro_batch)) {
  }

  std::vector<std::string> find() {
    micro_batch_more();
    reruns_more();
    device_more();
    return std::move(lines_);
  }

 private:
  // The same placement with a micro-batch more.
  void micro_batch_more() {
    const int64_t batch = request_.options.batch, more = batch + chosen_.micro_batch;
    const Solution& solution = chosen_.solution;
    Cluster capped = cluster_;
    for (size_t r = 0; r < request_.options.memory_caps.size(); ++r)
      capped.devices[r].memory = request_.options.memory_caps[r];
    const std::vector<int64_t> sizes = micro_batch_sizes(more, chosen_.micro_batch);
    const Schedule schedule = make_schedule(chosen_.schedule, graph_, solution.placement, sizes);
    const std::vector<RankMemory> memory =
        predict_memory(graph_, solution.placement, costs_, capped.devices, schedule, sizes);
    const Nanos step =
        simulate(graph_, solution.placement, costs_, capped, schedule, sizes).makespan;
    const std::string what = fmt::format("a micro-batch more (batch {})", more);
    for (size_t r = 0; r < memory.size(); ++r) {
      const Bytes over = memory[r].total() - capped.devices[r].memory;
      if (over.count <= 0) continue;
      lines_.push_back(fmt::format("{}: does not fit with these stages, rank {} lacks {}", what, r,
                                   mib_text(over)));
      return;
    }
    const std::string then = millis_text(Nanos{step.count / more});
    const std::string now = millis_text(Nanos{solution.step.makespan.count / batch});
    if (then == now) return;  // one stage, say: nothing to tell
    lines_.push_back(fmt::format("{}: {} a sample instead of {}, {} on the fullest rank", what,
                                 then, now, change_text(solution.peak(), fullest_of(memory))));
  }

  // The next leaner plan of the front that runs more blocks again, or the next faster that runs
  // fewer.
  void reruns_more() {
    const int64_t now = reruns_of(chosen_);
    for (size_t i = front_.chosen + 1; i < front_.plans.size(); ++i) {
      const int64_t more = reruns_of(front_.plans[i]) - now;
      if (more <= 0 || !is_like_chosen(front_.plans[i]) || !is_told_apart(front_.plans[i]))
        continue;
      add_front_plan(fmt::format("{} more run again", counted(more, "block")), front_.plans[i]);
      break;
    }
    for (size_t i = front_.chosen; i-- > 0;) {
      const int64_t fewer = now - reruns_of(front_.plans[i]);
      if (fewer <= 0 || !is_like_chosen(front_.plans[i]) || !is_told_apart(front_.plans[i]))
        continue;
      add_front_plan(fmt::format("{} fewer run again", counted(fewer, "block")), front_.plans[i]);
      break;
    }
  }
  // Else what differs is more than what runs again.
  bool is_like_chosen(const FrontPlan& plan) const {
    return plan.solution.placement.stages() == chosen_.solution.placement.stages() &&
           plan.schedule == chosen_.schedule && plan.micro_batch == chosen_.micro_batch;
  }
  bool is_told_apart(const FrontPlan& plan) const {
    return millis_text(plan.solution.step.makespan) != millis_text(chosen_.solution.step.makespan);
  }
  void add_front_plan(const std::string& what, const FrontPlan& plan) {
    lines_.push_back(fmt::format("{}: {} a step instead of {}, {} on the fullest rank", what,
                                 millis_text(plan.solution.step.makespan),
                                 millis_text(chosen_.solution.step.makespan),
                                 change_text(chosen_.solution.peak(), plan.solution.peak())));
  }

  // The fastest plan with a stage more, against the fastest now.
  void device_more() {
    const int stages = chosen_.solution.placement.stages();
    if (stages < static_cast<int>(cluster_.devices.size()) || request_.options.stages > 0 ||
        request_.options.limits.is_over())
      return;
    Cluster wider_cluster = cluster_;
    wider_cluster.devices.push_back(cluster_.devices.back());
    if (!cluster_.host_of_rank.empty())
      wider_cluster.host_of_rank.push_back(cluster_.host_of_rank.back());
    const int last = stages - 1;  // whose links the new one has as well
    for (const auto& [pair, link] : cluster_.exceptions) {
      if (pair.first == last) wider_cluster.exceptions[{stages, pair.second}] = link;
      if (pair.second == last) wider_cluster.exceptions[{pair.first, stages}] = link;
    }
    std::vector<int> ranks(stages + 1);
    std::iota(ranks.begin(), ranks.end(), 0);
    ranks.back() = last;
    SolverOptions options = request_.options;
    options.stages = stages + 1;
    options.schedule = chosen_.schedule;
    options.micro_batch = chosen_.micro_batch;
    options.limits = options.limits.part(kNodesOfOutlook);
    if (!options.memory_caps.empty()) options.memory_caps.push_back(options.memory_caps.back());
    const std::string what = fmt::format("a device more ({})", cluster_.devices.back().name);
    const ClusterCosts wider_costs = costs_.select(ranks);
    const StageTable table(graph_, wider_costs);
    if (options.stages > table.units()) return;
    const std::optional<Solution> wider = try_solve(table, wider_cluster, options);
    if (!wider) return;  // nothing to promise
    const Solution& now = front_.plans.front().solution;
    lines_.push_back(
        wider->step.makespan < now.step.makespan
            ? fmt::format("{}: {} a step instead of {} for the fastest plan, {} on its fullest "
                          "rank",
                          what, millis_text(wider->step.makespan), millis_text(now.step.makespan),
                          change_text(now.peak(), wider->peak()))
            : fmt::format("{}: no faster step was found", what));
  }

  const BlockGraph& graph_;
  const Cluster& cluster_;
  const FrontRequest& request_;
  const Front& front_;
  const FrontPlan& chosen_;
  const ClusterCosts& costs_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> outlook(const BlockGraph& graph, const Cluster& cluster,
                                 const FrontRequest& request, const Front& front) {
  return Outlook(graph, cluster, request, front).find();
}

}  // namespace stagecraft
