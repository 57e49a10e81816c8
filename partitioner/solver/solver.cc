#include "partitioner/solver/solver.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "partitioner/base/error.h"
#include "partitioner/solver/infeasible.h"
#include "partitioner/solver/leanest.h"
#include "partitioner/solver/refine.h"
#include "partitioner/solver/target.h"

namespace stagecraft {

Bytes Solution::peak() const { return fullest_of(memory); }

double Solution::gap() const {
  if (step.makespan.count == 0) return 0;
  return 1 - static_cast<double>(proven_bound.count) / static_cast<double>(step.makespan.count);
}

Solution solution_of(const StageTable& table, const SplitTarget& target, Split split, int64_t bound,
                     const SearchLimits& limits) {
  split = refine(table, target, std::move(split), limits);
  Solution solution{.placement = std::move(split.placement),
                    .schedule = std::move(split.schedule),
                    .down_sets = table.nodes(),
                    .bottleneck = std::ranges::max(split.step.busy),
                    .step = std::move(split.step),
                    .proven_bound = {},
                    .memory = std::move(split.memory)};
  solution.proven_bound = std::min(Nanos{bound}, solution.step.makespan);
  solution.bottleneck.count /= static_cast<int64_t>(target.micro_batch_sizes.size());
  return solution;
}

namespace {

// A unit is on one rank: names two blocks of one that are fixed to different ranks.
void check_fixed_units(const StageTable& table, const std::vector<std::pair<int, int>>& fixed) {
  std::map<int, std::pair<int, int>> by_unit;  // block and rank
  for (const auto& [block, rank] : fixed) {
    const auto [first, is_new] =
        by_unit.try_emplace(table.order().unit_of_block[block], block, rank);
    const auto& [other, other_rank] = first->second;
    if (is_new || other_rank == rank) continue;
    const std::vector<Block>& blocks = table.graph().blocks;
    throw ConfigError(other == block
                          ? fmt::format("block {} is fixed to rank {} and to rank {}: give one",
                                        blocks[block].name, other_rank, rank)
                          : fmt::format("blocks {} and {} go together (docs/search.md, Units), but "
                                        "are fixed to ranks {} and {}: fix them to one rank, or "
                                        "one of them only",
                                        blocks[other].name, blocks[block].name, other_rank, rank));
  }
}

}  // namespace

SplitTarget target_of(const StageTable& table, const Cluster& cluster,
                      const SolverOptions& options) {
  const int ranks = static_cast<int>(cluster.devices.size());
  const int stages = options.stages == 0 ? ranks : options.stages;
  if (stages < 1 || stages > ranks)
    throw ConfigError(fmt::format("{} stages on {} devices of cluster {}: give 1 to {}", stages,
                                  ranks, cluster.name, ranks));
  if (options.batch < 1 || options.micro_batch < 1)
    throw ConfigError(fmt::format("batch {} in micro-batches of {}: both must be 1 or more",
                                  options.batch, options.micro_batch));
  if (options.micro_batch != table.costs().micro_batch())
    throw ConfigError(
        fmt::format("the cost table is for micro-batch {}, the plan for {}: make a table for it",
                    table.costs().micro_batch(), options.micro_batch),
        ExitCode::kPlanMismatch);
  const std::vector<std::string> generators = generator_names();
  if (std::ranges::find(generators, options.schedule) == generators.end())
    throw ConfigError(fmt::format("schedule \"{}\" is unknown; allowed are {}", options.schedule,
                                  fmt::join(generators, ", ")));
  if (!options.memory_caps.empty() && static_cast<int>(options.memory_caps.size()) != stages)
    throw ConfigError(fmt::format("{} memory caps for {} ranks: give one for each",
                                  options.memory_caps.size(), stages));
  for (const auto& [block, rank] : options.fixed) {
    const std::string& name = table.graph().blocks.at(block).name;
    if (rank < 0 || rank >= stages)
      throw ConfigError(fmt::format("block {} is fixed to rank {}, but ranks are 0 to {}", name,
                                    rank, stages - 1));
    if (table.order().unit_of_block[block] < 0)
      throw ConfigError(
          fmt::format("block {} cannot be fixed: it runs on every rank that needs it", name));
  }
  check_fixed_units(table, options.fixed);
  if (stages > table.units())
    throw ConfigError(fmt::format("{} stages for {} units of blocks: give at most {}", stages,
                                  table.units(), table.units()));
  SplitTarget target{.cluster = cluster,
                     .schedule = options.schedule,
                     .micro_batch_sizes = micro_batch_sizes(options.batch, options.micro_batch),
                     .may_recompute = options.may_recompute,
                     .any_order = options.any_order,
                     .fixed = options.fixed};
  target.cluster.devices.resize(stages);
  for (size_t r = 0; r < options.memory_caps.size(); ++r)
    target.cluster.devices[r].memory = options.memory_caps[r];
  return target;
}

SearchResult find_split(const StageTable& table, const SplitTarget& target,
                        const SearchLimits& limits) {
  SearchResult result = search_transfers(table, target, limits);
  if (result.best || result.is_complete || limits.longest_step || !target.fixed.empty())
    return result;
  Leanest leanest = leanest_split(table, target);
  if (leanest.split.excess(target) > 0) return result;
  result.bound = std::min(result.bound, leanest.split.step.makespan.count);
  result.best = std::move(leanest.split);
  return result;
}

std::optional<Solution> try_solve(const StageTable& table, const Cluster& cluster,
                                  const SolverOptions& options) {
  const SplitTarget target = target_of(table, cluster, options);
  SearchResult result = find_split(table, target, options.limits);
  if (!result.best) return {};
  Solution solution =
      solution_of(table, target, std::move(*result.best), result.bound, options.limits);
  if (result.straight) {
    Solution straight =
        solution_of(table, target, std::move(*result.straight), result.bound, options.limits);
    if (straight.step.makespan < solution.step.makespan) return straight;
  }
  return solution;
}

Solution solve(const BlockGraph& graph, const ClusterCosts& costs, const Cluster& cluster,
               const SolverOptions& options) {
  const StageTable table(graph, costs);
  if (std::optional<Solution> solution = try_solve(table, cluster, options))
    return *std::move(solution);
  throw ResourceError(explain_infeasible(table, target_of(table, cluster, options), options));
}

}  // namespace stagecraft
