// `partition graph`, `partition verify`, `partition report`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "models/network/build.h"
#include "models/network/describe.h"
#include "models/network/other_parameters.h"
#include "partition_commands.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/plan/report.h"

namespace stagecraft {
namespace {

struct ReportedStep {
  ClusterCosts costs;
  SimulatedStep step;
};

// The plan's step, where something is to be shown of it. A plan holds no costs: they come from the
// table given, or are counted for the devices of its cluster. Nothing when --json alone asks and
// the cluster's file is not found.
std::optional<ReportedStep> simulate_again(const ReportCommand& command, const Plan& plan,
                                           const PartitionJob& job, const ResolvedPlan& resolved) {
  const bool is_viewed = !command.views.html.empty() || !command.views.trace.empty();
  if (!is_viewed && !command.json) {
    const char* unused = !command.cluster.empty()      ? "--cluster"
                         : !command.cost_table.empty() ? "--cost-table"
                                                       : nullptr;
    if (unused == nullptr) return std::nullopt;
    throw Error(ExitCode::kUsage,
                fmt::format("{0} is for the simulated step, which --html, --trace and --json show: "
                            "add one of them, or leave {0} out",
                            unused));
  }
  const std::string file = command.cluster.empty() ? cluster_file_of(plan) : command.cluster;
  if (file.empty()) {
    if (!is_viewed) return std::nullopt;
    throw Error(
        ExitCode::kUsage,
        fmt::format("there is no file of cluster {}; name it with --cluster", plan.cluster));
  }
  const Cluster cluster = load_cluster(file);
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    const std::string& planned = plan.ranks[r].device;
    const std::string has = r < cluster.devices.size() ? cluster.devices[r].name : "no device";
    if (planned == has) continue;
    throw ConfigError(fmt::format("rank {} of the plan is a {}, cluster {} has {} there; --cluster "
                                  "names the file that the plan was made for",
                                  r, planned, cluster.name, has),
                      ExitCode::kPlanMismatch);
  }
  ClusterCosts costs = load_costs(
      {.file = command.cost_table, .profile = false, .threads = 0, .quiet = command.json}, job,
      plan.train, cluster);
  SimulatedStep step = simulate(job.graph, resolved.placement, costs, cluster, resolved.schedule,
                                resolved.micro_batch_sizes);
  return ReportedStep{.costs = std::move(costs), .step = std::move(step)};
}

std::string next_after_report(const ReportCommand& command, const Plan& plan) {
  if (plan.train.precision != "fp32")
    return "GPU ranks and half precision do not train yet; plan the job for CPU ranks: partition "
           "... --precision fp32 --cluster local_cpu_4";
  return command.measured.empty()
             ? fmt::format(
                   "pipetrain --plan {0} ... trains it; then partition report {0} "
                   "--measured OUT/measured.json sets measured beside predicted",
                   command.plan)
             : fmt::format(
                   "to move blocks, edit {0}, delete `messages` and `predicted`, and "
                   "partition verify {0} --cluster CLUSTER -o NEW",
                   command.plan);
}

}  // namespace

int run_graph(const GraphCommand& command) {
  TrainConfig train;
  train.model = command.model;
  train.width = command.width;
  train.height = command.height;
  train.precision = command.precision;
  train.trainable = command.trainable;
  if (const std::string fault = validate(train); !fault.empty()) {
    throw Error(ExitCode::kUsage, fault);
  }
  const PartitionJob job = load_job(train);
  const std::vector<BlockGraph> graphs = {
      job.graph, build_vae_encoder(job.model, command.width, command.height),
      build_vae_decoder(job.model, command.width, command.height), build_text_encoder(job.model)};
  const std::string text = command.json ? describe_json(graphs) : describe_text(graphs);
  fmt::print("{}{}", text, text.ends_with('\n') ? "" : "\n");
  return 0;
}

int run_verify(const VerifyCommand& command) {
  Inputs inputs = cluster_inputs(command.cluster);
  inputs.emplace_back("cost table", command.cost_table);
  check_output("-o", command.output, inputs);
  Plan plan = read_plan(command.plan);
  const PartitionJob job = load_job(plan.train);
  const ResolvedPlan resolved = resolve_plan(plan, job.graph, command.plan);
  if (!command.output.empty()) {
    if (command.cluster.empty()) {
      throw Error(ExitCode::kUsage, "-o writes predictions anew and needs --cluster");
    }
    const Cluster cluster = load_cluster(command.cluster);
    const ClusterCosts costs = load_costs(
        {.file = command.cost_table, .profile = false, .threads = 0, .quiet = command.json}, job,
        plan.train, cluster);
    plan.front.clear();  // of the search that made the plan, which an edit may have changed
    predict_with_alternatives(plan, job, resolved, costs, cluster, {});
    write_plan(plan, job.graph, command.output);
  }
  const std::string hash = plan_hash(plan);
  size_t actions = 0;
  for (const auto& rank : resolved.schedule.ranks) actions += rank.size();
  if (command.json) {
    const nlohmann::json out = {{"code", 0},
                                {"plan", command.plan},
                                {"plan_hash", hash},
                                {"stages", plan.stages.size()},
                                {"ranks", resolved.placement.ranks()},
                                {"micro_batches", resolved.micro_batch_sizes.size()},
                                {"messages", resolved.schedule.messages.size()}};
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{} can run: {} on {}, {}, {}, {}; plan {}\n", command.plan,
             counted(std::ssize(plan.stages), "stage"), counted(resolved.placement.ranks(), "rank"),
             counted(std::ssize(resolved.micro_batch_sizes), "micro-batch"),
             counted(static_cast<int64_t>(actions), "action"),
             counted(std::ssize(resolved.schedule.messages), "message"), hash.substr(0, 12));
  if (!command.output.empty()) fmt::print("written: {}\n", command.output);
  return 0;
}

int run_report(const ReportCommand& command) {
  Inputs inputs = cluster_inputs(command.cluster);
  inputs.insert(inputs.end(), {{"plan", command.plan},
                               {"run's measurements", command.measured},
                               {"cost table", command.cost_table}});
  check_outputs(command.views, inputs);
  const Plan plan = read_plan(command.plan);
  const PartitionJob job = load_job(plan.train);
  const ResolvedPlan resolved = resolve_plan(plan, job.graph, command.plan);
  ReportOptions options{.other = other_parameters(job.model),
                        .measured = {},
                        .seen_on_one_device = {},
                        .bubbles = {}};
  if (!command.measured.empty()) options.measured = read_measured(command.measured);
  options.seen_on_one_device = parse_size(command.seen_on_one_device);
  const std::optional<ReportedStep> reported = simulate_again(command, plan, job, resolved);
  if (reported && reported->step.makespan == plan.predicted_step) {
    options.bubbles =
        sum_bubbles(find_bubbles(resolved.schedule, reported->step), plan.ranks.size());
  }
  const Report report = make_report(plan, job.graph, resolved.placement, options);
  if (reported) {
    write_views(command.views,
                {.plan = plan,
                 .graph = job.graph,
                 .resolved = resolved,
                 .costs = reported->costs,
                 .step = reported->step,
                 .report = report},
                {});
  }
  if (command.json) {
    nlohmann::json out = nlohmann::json::parse(to_json(report));
    out["code"] = 0;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\n{}next: {}\n", to_text(report), written_text(command.views),
               next_after_report(command, plan));
  }
  return 0;
}

}  // namespace stagecraft
