#include "partitioner/solver/solver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/solver/infeasible.h"
#include "partitioner/solver/split_problem.h"

namespace stagecraft {
namespace {

SplitTarget target_of(const ClusterCosts& costs, const Cluster& cluster,
                      const SolverOptions& options) {
  const int ranks = static_cast<int>(cluster.devices.size());
  const int stages = options.stages == 0 ? ranks : options.stages;
  if (stages < 1 || stages > ranks)
    throw ConfigError(fmt::format("{} stages on {} devices of cluster {}: give 1 to {}", stages,
                                  ranks, cluster.name, ranks));
  if (options.batch < 1 || options.micro_batch < 1)
    throw ConfigError(fmt::format("batch {} in micro-batches of {}: both must be 1 or more",
                                  options.batch, options.micro_batch));
  if (costs.kinds() > 1)
    throw ConfigError(
        fmt::format("cluster {} has {} kinds of devices: the search needs one kind, "
                    "which may differ in memory",
                    cluster.name, costs.kinds()));
  if (options.micro_batch != costs.micro_batch())
    throw ConfigError(
        fmt::format("the cost table is for micro-batch {}, the plan for {}: make a table for it",
                    costs.micro_batch(), options.micro_batch),
        ExitCode::kPlanMismatch);
  const std::vector<std::string> generators = generator_names();
  if (std::ranges::find(generators, options.schedule) == generators.end())
    throw ConfigError(fmt::format("schedule \"{}\" is unknown; allowed are {}", options.schedule,
                                  fmt::join(generators, ", ")));
  if (!options.memory_caps.empty() && static_cast<int>(options.memory_caps.size()) != stages)
    throw ConfigError(fmt::format("{} memory caps for {} ranks: give one for each",
                                  options.memory_caps.size(), stages));
  SplitTarget target{.devices = {cluster.devices.begin(), cluster.devices.begin() + stages},
                     .schedule = options.schedule,
                     .micro_batch_sizes = micro_batch_sizes(options.batch, options.micro_batch)};
  for (size_t r = 0; r < options.memory_caps.size(); ++r)
    target.devices[r].memory = options.memory_caps[r];
  return target;
}

}  // namespace

Solution solve(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
               const SolverOptions& options) {
  const SplitTarget target = target_of(costs, cluster, options);
  const SplitProblem problem(graph, costs);
  if (target.stages() > problem.searched_units())
    throw ConfigError(fmt::format("{} stages for {} units of blocks: give at most {}",
                                  target.stages(), problem.searched_units(),
                                  problem.searched_units()));
  std::optional<Split> split = problem.fastest(target);
  if (!split)
    throw ResourceError(explain_infeasible(graph, costs.of_kind(0), problem, target, options));
  SimulatedStep step =
      simulate(graph, split->placement, costs, cluster, split->schedule, target.micro_batch_sizes);
  return {.placement = std::move(split->placement),
          .down_sets = problem.down_set_count(),
          .bottleneck = Nanos{split->bottleneck},
          .proven_bound = Nanos{split->proven_bound},
          .memory = std::move(split->memory),
          .step = std::move(step)};
}

}  // namespace stagecraft
