#include "partitioner/plan/comparison.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/format.h"
#include "partitioner/baselines/baselines.h"
#include "partitioner/plan/ways.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {
namespace {

// Simulates placements under the same circumstances.
class Judge {
 public:
  Judge(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
        const std::vector<int64_t>& sizes)
      : graph_(graph), costs_(costs), cluster_(cluster), sizes_(sizes) {}

  SplitRow row(const Placement& placement, const Schedule& schedule) const {
    SplitRow row;
    const SimulatedStep step = simulate(graph_, placement, costs_, cluster_, schedule, sizes_);
    row.step = step.makespan;
    Nanos sum, most;
    for (const Nanos busy : step.busy) {
      sum += busy;
      most = std::max(most, busy);
    }
    if (sum.count > 0) {
      row.balance = static_cast<double>(most.count) * static_cast<double>(step.busy.size()) /
                    static_cast<double>(sum.count);
    }
    const auto memory =
        predict_memory(graph_, placement, costs_, cluster_.devices, schedule, sizes_);
    for (size_t r = 0; r < memory.size(); ++r) {
      const Bytes total = memory[r].total(), device = cluster_.devices[r].memory;
      if (r > 0 && total - device <= row.memory - row.device_memory) continue;
      row.rank = static_cast<int>(r);
      row.memory = total;
      row.device_memory = device;
    }
    return row;
  }

  SplitRow row(const Baseline& baseline, const std::string& generator) const {
    SplitRow made =
        row(baseline.placement, make_schedule(generator, graph_, baseline.placement, sizes_));
    made.name = baseline.name;
    made.how = baseline.how;
    return made;
  }

 private:
  const BlockGraph& graph_;
  const ClusterCosts& costs_;
  const Cluster& cluster_;
  const std::vector<int64_t>& sizes_;
};

}  // namespace

Comparison compare(const Plan& plan, const BlockGraph& graph, const ResolvedPlan& resolved,
                   const ClusterCosts& costs, const Cluster& cluster) {
  const Judge judge(graph, costs, cluster, resolved.micro_batch_sizes);
  Comparison comparison{
      .title = fmt::format("{}, {}x{} pixels, {}, {}, {} on {}", graph.model, plan.train.width,
                           plan.train.height, plan.train.precision, batch_text(plan),
                           counted(std::ssize(plan.stages), "stage"), cluster.name),
      .splits = {},
      .as_way = as_way(plan),
      .alternatives = plan.alternatives};
  SplitRow ours = judge.row(resolved.placement, resolved.schedule);
  ours.name = "this plan";
  ours.how = "found by the search, under every device's memory";
  if (!plan.recompute.empty())
    ours.how += fmt::format("; {} {} forward again", counted(plan.recompute.size(), "block"),
                            plan.recompute.size() == 1 ? "runs" : "run");
  if (plan.relays) ours.how += "; transfers are relayed";
  comparison.splits.push_back(std::move(ours));
  const int stages = resolved.placement.stages();
  std::vector<Baseline> baselines = block_order_baselines(graph, costs.of_rank(0), stages);
  baselines.push_back(branch_baseline(graph, costs, stages));
  const std::string generator = plan.schedule == "explicit" ? "1f1b" : plan.schedule;
  for (const Baseline& baseline : baselines) {
    comparison.splits.push_back(judge.row(baseline, generator));
  }
  return comparison;
}

}  // namespace stagecraft
