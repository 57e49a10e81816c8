// Compute orders: GPipe and 1F1B per stage, merged where a rank hosts several stages.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <tuple>

#include "partitioner/base/error.h"
#include "partitioner/schedule/from_flow.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/schedule/unit_time.h"

namespace stagecraft {
namespace {

// `warm_up` forwards, then one forward and one backward in turn, then the backwards that are left.
// GPipe is the case where everything is warm-up.
std::vector<Action> stage_order(int stage, int warm_up, int micro_batches, bool has_backward) {
  std::vector<Action> actions;
  auto add = [&](ActionKind kind, int j) {
    actions.push_back({.kind = kind, .stage = stage, .micro_batch = j});
  };
  for (int j = 0; j < micro_batches + warm_up; ++j) {
    if (j < micro_batches) add(ActionKind::kForward, j);
    if (j >= warm_up && has_backward) add(ActionKind::kBackward, j - warm_up);
  }
  return actions;
}

// What a rank would run next, ordered by start; at equal start a backward first, which frees
// memory.
struct Candidate {
  int64_t start;
  bool is_forward;
  int micro_batch, stage, rank;
  auto key() const { return std::tie(start, is_forward, micro_batch, stage); }
};

// Runs all stages at unit costs, one action at a time per rank: whatever can start first.
std::vector<std::vector<Action>> merge(const Flow& flow, const Placement& placement,
                                       const std::vector<std::vector<Action>>& stage_orders,
                                       int micro_batches) {
  std::vector<std::vector<Action>> ranks(placement.ranks());
  std::vector<int64_t> free(ranks.size());
  std::vector<size_t> next(stage_orders.size());
  EndTimes ends(static_cast<int>(stage_orders.size()), micro_batches);
  while (true) {
    std::vector<Candidate> candidates;
    bool all_done = true;
    for (size_t s = 0; s < stage_orders.size(); ++s) {
      if (next[s] == stage_orders[s].size()) continue;
      all_done = false;
      const Action& action = stage_orders[s][next[s]];
      const int64_t ready = ready_time(flow, ends, action);
      if (ready == EndTimes::kUnknown) continue;
      const int rank = placement.rank_of_stage[s];
      candidates.push_back({.start = std::max(ready, free[rank]),
                            .is_forward = action.kind == ActionKind::kForward,
                            .micro_batch = action.micro_batch,
                            .stage = action.stage,
                            .rank = rank});
    }
    if (all_done) return ranks;
    check(!candidates.empty(), "a generated order cannot run");
    const Candidate chosen =
        *std::min_element(candidates.begin(), candidates.end(),
                          [](const Candidate& a, const Candidate& b) { return a.key() < b.key(); });
    const Action& action = stage_orders[chosen.stage][next[chosen.stage]++];
    free[chosen.rank] = chosen.start + unit_cost(action.kind);
    ends.set(action, free[chosen.rank]);
    ranks[chosen.rank].push_back(action);
  }
}

}  // namespace

std::vector<std::string> generator_names() { return {"1f1b", "gpipe"}; }

int64_t micro_batches_in_flight(std::string_view generator, int stage, int stages,
                                int64_t micro_batches) {
  if (generator == "gpipe") return micro_batches;
  if (generator == "1f1b") return std::min<int64_t>(micro_batches, stages - stage);
  throw ConfigError(fmt::format("schedule \"{}\" is unknown; allowed are {}", generator,
                                fmt::join(generator_names(), ", ")));
}

std::vector<std::vector<Action>> generate_order(std::string_view generator, const Flow& flow,
                                                const Placement& placement, int micro_batches) {
  check(micro_batches > 0, "a step has at least one micro-batch");
  std::vector<std::vector<Action>> stage_orders;
  for (int s = 0; s < placement.stages(); ++s) {
    // 1F1B runs a forward more before its first backward. GPipe's forwards are all warm-up.
    const int warm_up = static_cast<int>(
        micro_batches_in_flight(generator, s, placement.stages(), micro_batches) - 1);
    stage_orders.push_back(stage_order(s, warm_up, micro_batches, flow.has_backward[s]));
  }
  auto ranks = merge(flow, placement, stage_orders, micro_batches);
  for (auto& actions : ranks) actions.push_back({.kind = ActionKind::kStep});
  return ranks;
}

std::vector<std::vector<Action>> generate_order(std::string_view generator, const BlockGraph& graph,
                                                const Placement& placement, int micro_batches) {
  return generate_order(generator, derive_flow(graph, placement), placement, micro_batches);
}

Schedule make_schedule(std::string_view generator, const BlockGraph& graph, const Flow& flow,
                       const Placement& placement, const std::vector<int64_t>& micro_batch_sizes) {
  const auto order =
      generate_order(generator, flow, placement, static_cast<int>(micro_batch_sizes.size()));
  return insert_messages(graph, flow, placement, order, micro_batch_sizes);
}

Schedule make_schedule(std::string_view generator, const BlockGraph& graph,
                       const Placement& placement, const std::vector<int64_t>& micro_batch_sizes) {
  return make_schedule(generator, graph, derive_flow(graph, placement), placement,
                       micro_batch_sizes);
}

}  // namespace stagecraft
