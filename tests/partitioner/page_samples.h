// A plan that has everything that a page can show, with names that would break out of one.
#pragma once

#include <string>
#include <vector>

#include "partitioner/page/page.h"
#include "partitioner/plan/make_plan.h"
#include "tests/support/chain_graph.h"
#include "tests/support/made_up_costs.h"

namespace stagecraft {

inline const std::string kMarkup = "</script><script>window.broken=1</script><b>\"'&amp;";

struct PageSample {
  BlockGraph graph;
  Plan plan;
  ResolvedPlan resolved;
  ClusterCosts costs;
  SimulatedStep step;
  Report report;

  PageSources sources() const {
    return {.plan = plan,
            .graph = graph,
            .resolved = resolved,
            .costs = costs,
            .step = step,
            .report = report};
  }
};

// Four stages of two blocks on four ranks, six micro-batches; the last block of stage 2 recomputes.
inline PageSample page_sample(const Cluster& cluster, const std::string& name) {
  constexpr int kStages = 4;
  BlockGraph graph = testing::chain_graph(2 * kStages, /*first_trainable=*/2);
  graph.model = graph.blocks[3].name = name;
  CostTable table = testing::uniform_costs(graph);
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    BlockCost& cost = table.blocks.at(graph.blocks[b].name);
    const int64_t part = static_cast<int64_t>(b % 3 + 2) * 1'000'000;
    cost.forward.median = {part};
    cost.backward_input.median = {part};
    cost.backward_weight.median = {part / 2};
    cost.saved_internal = Bytes::from_mib(3.5 * static_cast<double>(b));
    cost.workspace_forward = cost.workspace_backward = Bytes::from_mib(9);
  }
  PageSample sample{.graph = graph,
                    .plan = {},
                    .resolved = {},
                    .costs = ClusterCosts(table),
                    .step = {},
                    .report = {}};
  Placement& placement = sample.resolved.placement;
  for (int b = 0; b < 2 * kStages; ++b) placement.stage_of_block.push_back(b / 2);
  placement.rank_of_stage = {0, 1, 2, 3};
  placement.recompute.assign(graph.blocks.size(), false);
  placement.recompute[5] = true;
  sample.resolved.micro_batch_sizes = std::vector<int64_t>(6, 1);
  sample.resolved.schedule =
      insert_messages(graph, placement, generate_order("1f1b", graph, placement, 6),
                      sample.resolved.micro_batch_sizes);
  TrainConfig train;
  train.batch = 6;
  sample.plan = make_plan(train, graph, placement, "1f1b");
  predict(sample.plan, graph, sample.resolved, sample.costs, cluster);
  sample.step = simulate(graph, placement, sample.costs, cluster, sample.resolved.schedule,
                         sample.resolved.micro_batch_sizes);
  return sample;
}

inline Cluster sample_cluster(const std::string& name) {
  Cluster cluster = testing::plain_cluster(4, /*bandwidth=*/1e5, /*latency=*/{300'000});
  cluster.name = name;
  for (Device& device : cluster.devices) {
    device.name = name;
    device.memory = Bytes::from_mib(120);
    device.base = Bytes::from_mib(20);
    device.comm_buffer_per_peer = Bytes::from_mib(2);
  }
  cluster.devices[3].memory = Bytes::from_mib(60);  // its rank does not fit
  return cluster;
}

// What a run of it might have used: a little more of everything that is measured.
inline Measured sample_measured(const Plan& plan) {
  Measured measured{.plan_hash = plan_hash(plan), .machine = "here", .steps = 3, .ranks = {}};
  for (const PlannedRank& planned : plan.ranks) {
    MeasuredRank rank;
    for (int line = 0; line < kMemoryLines; ++line) {
      const auto id = static_cast<MemoryLine>(line);
      if (is_measured(id)) rank.memory[id] = {planned.memory[id].count * 11 / 10};
    }
    rank.busy_seconds = planned.busy.seconds() * 1.02;
    rank.step_seconds = plan.predicted_step.seconds() * 1.05;
    measured.ranks.push_back(rank);
  }
  return measured;
}

inline PageSample full_page_sample(const std::string& name = kMarkup) {
  PageSample sample = page_sample(sample_cluster(name), name);
  Plan& plan = sample.plan;
  const auto peak = Bytes::from_mib(70);
  const Nanos step = plan.predicted_step;
  const auto percent = [](auto of, int64_t part) {
    of.count = of.count * part / 100;
    return of;
  };
  plan.front = {{.step = step,
                 .peak = peak,
                 .stages = 4,
                 .schedule = name,
                 .recomputed = 1,
                 .is_chosen = true},
                {.step = percent(step, 110),
                 .peak = percent(peak, 70),
                 .replicas = 2,
                 .stages = 2,
                 .schedule = "1f1b"},
                {.step = percent(step, 130),
                 .peak = percent(peak, 60),
                 .stages = 4,
                 .schedule = "gpipe",
                 .recomputed = 8}};
  plan.alternatives = {{.name = "one device",
                        .how = "everything on the largest device",
                        .memory = Bytes::from_mib(260),
                        .device_memory = Bytes::from_mib(120),
                        .step = step * 3,
                        .exposed = {}},
                       {.name = name,
                        .how = name,
                        .memory = Bytes::from_mib(110),
                        .device_memory = Bytes::from_mib(120),
                        .step = percent(step, 90),
                        .exposed = percent(step, 20)}};
  ReportOptions options;
  options.measured = sample_measured(plan);
  options.bubbles = sum_bubbles(find_bubbles(sample.resolved.schedule, sample.step), 4);
  sample.report = make_report(plan, sample.graph, sample.resolved.placement, options);
  return sample;
}

}  // namespace stagecraft
