#include "partitioner/plan/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/plan/ways.h"

namespace stagecraft {
namespace {

double max_over_mean(const std::vector<double>& values) {
  double sum = 0, max = 0;
  for (const double value : values) {
    sum += value;
    max = std::max(max, value);
  }
  return sum > 0 ? max * static_cast<double>(values.size()) / sum : 1.0;
}

void add_measured(Report& report, const Measured& measured, const Plan& plan) {
  if (measured.plan_hash != plan_hash(plan)) {
    throw ConfigError(
        "the measurements belong to another plan; take the measured.json of a run of this plan",
        ExitCode::kPlanMismatch);
  }
  if (measured.ranks.size() != report.ranks.size()) {
    throw ConfigError(fmt::format("the measurements hold {} ranks, the plan has {}",
                                  measured.ranks.size(), report.ranks.size()),
                      ExitCode::kPlanMismatch);
  }
  std::vector<double> busy, memory;
  double step = 0, sum = 0;
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const MeasuredRank& rank = measured.ranks[r];
    report.ranks[r].measured = rank;
    busy.push_back(rank.busy_seconds);
    memory.push_back(static_cast<double>(rank.memory.total().count));
    step = std::max(step, rank.step_seconds);
    sum += rank.busy_seconds;
  }
  report.measured_step = Nanos{static_cast<int64_t>(step * 1e9)};
  report.measured_balance = Balance{.time = max_over_mean(busy), .memory = max_over_mean(memory)};
  report.measured_bubble = step > 0 ? 1.0 - sum / (step * static_cast<double>(busy.size())) : 0.0;
}

std::vector<ReportRank> report_ranks(const Plan& plan, const BlockGraph& graph,
                                     const Placement& placement) {
  std::vector<ReportRank> ranks(plan.ranks.size());
  Nanos busy;
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].predicted = plan.ranks[r];
    busy += plan.ranks[r].busy;
    std::vector<bool> runs(graph.blocks.size(), false);
    for (int s = 0; s < placement.stages(); ++s) {
      if (placement.rank_of_stage[static_cast<size_t>(s)] != static_cast<int>(r)) continue;
      ranks[r].stages.push_back(s);
      for (const int b : placement.blocks_run_by(graph, s)) runs[static_cast<size_t>(b)] = true;
      for (const int b : placement.blocks_owned_by(graph, s)) runs[static_cast<size_t>(b)] = true;
    }
    for (size_t b = 0; b < runs.size(); ++b) {
      if (runs[b]) ranks[r].blocks.push_back(graph.blocks[b].name);
    }
  }
  for (ReportRank& rank : ranks) {
    rank.time_share = busy.count > 0 ? static_cast<double>(rank.predicted.busy.count) /
                                           static_cast<double>(busy.count)
                                     : 0.0;
  }
  return ranks;
}

}  // namespace

Report make_report(const Plan& plan, const BlockGraph& graph, const Placement& placement,
                   const ReportOptions& options) {
  if (static_cast<int>(plan.ranks.size()) != placement.ranks()) {
    throw ConfigError(
        "the plan holds no predictions, or those of before it was edited; `partition verify "
        "plan.yaml --cluster C -o new.yaml` makes "
        "them");
  }
  Report report;
  report.title =
      fmt::format("{}, {}x{} pixels, {}, {}, {}, {} on {} of {}", graph.model, plan.train.width,
                  plan.train.height, plan.train.precision, batch_text(plan), schedule_text(plan),
                  counted(std::ssize(plan.stages), "stage"),
                  counted(std::ssize(plan.ranks), "rank"), plan.cluster);
  report.cost_table = plan.cost_table;
  report.ranks = report_ranks(plan, graph, placement);
  report.batch = plan.train.batch;
  report.step = plan.predicted_step;
  report.bubble = plan.predicted_bubble;
  report.more = plan.more;
  std::vector<double> busy, memory;
  for (const PlannedRank& rank : plan.ranks) {
    busy.push_back(static_cast<double>(rank.busy.count));
    memory.push_back(static_cast<double>(rank.memory.total().count));
  }
  report.balance = {.time = max_over_mean(busy), .memory = max_over_mean(memory)};
  report.one_device = plan.one_device;
  report.data_parallel = plan.data_parallel;
  report.known_trainers = known_trainers_account(graph, options.other);
  report.done_right = done_right_account(plan.one_device.memory, plan.data_parallel.memory);
  report.front = plan.front;
  report.as_way = as_way(plan);
  report.alternatives = plan.alternatives;
  report.seen_on_one_device = options.seen_on_one_device;
  for (size_t r = 0; r < options.bubbles.size(); ++r) {
    report.ranks.at(r).bubbles = options.bubbles[r];
  }
  if (options.measured) add_measured(report, *options.measured, plan);
  return report;
}

}  // namespace stagecraft
