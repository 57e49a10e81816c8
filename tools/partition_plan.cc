// `partition --config ... --cluster ... -o plan.yaml`: costs, search, plan, report.
#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "models/network/other_parameters.h"
#include "partition_commands.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/plan/make_plan.h"
#include "partitioner/plan/report.h"
#include "partitioner/solver/solver.h"

namespace stagecraft {
namespace {

TrainConfig train_config(const PlanCommand& command) {
  TrainConfig train;
  if (!command.config.empty()) train = read_train_config(command.config);
  const TrainFlags& flags = command.flags;
  if (flags.model) train.model = *flags.model;
  if (flags.precision) train.precision = *flags.precision;
  if (flags.width) train.width = *flags.width;
  if (flags.height) train.height = *flags.height;
  if (flags.batch) train.batch = *flags.batch;
  if (flags.micro_batch) train.micro_batch = *flags.micro_batch;
  if (flags.what) train.trainable.what = *flags.what;
  if (flags.sd_unlocked) train.trainable.sd_locked = false;
  if (flags.only_mid_control) train.trainable.only_mid_control = true;
  if (train.model.empty()) {
    throw Error(ExitCode::kUsage, "no model: give --config train.yaml or --model model.yaml");
  }
  if (const std::string fault = validate(train); !fault.empty()) {
    throw Error(ExitCode::kUsage, fmt::format("with the flags given, {}", fault));
  }
  return train;
}

SolverOptions solver_options(const PlanCommand& command, const TrainConfig& train,
                             const Cluster& cluster) {
  SolverOptions options{.stages = command.stages,
                        .schedule = command.schedule,
                        .memory_caps = {},
                        .batch = train.batch,
                        .micro_batch = train.micro_batch};
  const size_t ranks =
      command.stages > 0 ? static_cast<size_t>(command.stages) : cluster.devices.size();
  if (command.memory_caps.size() > 1 && command.memory_caps.size() != ranks) {
    throw Error(ExitCode::kUsage,
                fmt::format("--memory-cap gives {} values; give one, or one for each of {} ranks",
                            command.memory_caps.size(), ranks));
  }
  if (command.memory_caps.size() == 1) {
    options.memory_caps.assign(ranks, Bytes::from_mib(command.memory_caps.front()));
  } else {
    for (const double mib : command.memory_caps)
      options.memory_caps.push_back(Bytes::from_mib(mib));
  }
  return options;
}

std::string proof_text(const Solution& solution) {
  return fmt::format(
      "slowest stage {} a micro-batch, {}", millis_text(solution.bottleneck),
      solution.proven_bound == solution.bottleneck
          ? "proven to be the least that fits"
          : fmt::format("nothing below {} is possible", millis_text(solution.proven_bound)));
}

// `partition` for the same job on CPU ranks, of which a cluster of up to four is shipped.
std::string cpu_plan_command(const PlanCommand& command, size_t stages) {
  std::string text = "partition";
  const auto add = [&text](const char* flag, const auto& value) {
    if (value) text += fmt::format(" {} {}", flag, *value);
  };
  const TrainFlags& flags = command.flags;
  if (!command.config.empty()) text += " --config " + command.config;
  add("--model", flags.model);
  add("--width", flags.width);
  add("--height", flags.height);
  add("--batch", flags.batch);
  add("--micro-batch", flags.micro_batch);
  add("--what", flags.what);
  if (flags.sd_unlocked) text += " --sd-unlocked";
  if (flags.only_mid_control) text += " --only-mid-control";
  text += fmt::format(" --schedule {} --cluster local_cpu_{}", command.schedule,
                      stages > 2 ? 4 : stages);
  if (stages == 3) text += " --stages 3";
  const std::filesystem::path output(command.output);
  return text + " --precision fp32 -o " +
         (output.parent_path() / (output.stem().string() + "_cpu.yaml")).string();
}

// What trains is offered; what does not train yet is said.
std::string next_step(const PlanCommand& command, const TrainConfig& train, const Cluster& cluster,
                      size_t stages) {
  if (train.precision == "fp32" && cluster.devices.front().kind == "cpu") {
    return fmt::format("pipetrain --plan {}{} --weights DIR --data DIR --out DIR", command.output,
                       command.config.empty() ? "" : " --config " + command.config);
  }
  return "GPU ranks and half precision do not train yet; the same job for CPU ranks: " +
         cpu_plan_command(command, stages);
}

}  // namespace

int run_plan(const PlanCommand& command) {
  const Inputs inputs = {{"training file", command.config},
                         {"cluster file", command.cluster},
                         {"cost table", command.cost_table}};
  refuse_to_overwrite("-o", command.output, inputs);
  refuse_to_overwrite(command.views, [&] {
    Inputs others = inputs;
    others.emplace_back("plan", command.output);
    return others;
  }());
  const TrainConfig train = train_config(command);
  const Cluster cluster = load_cluster(command.cluster);
  const PartitionJob job = load_job(train);
  const ClusterCosts costs = load_costs({.file = command.cost_table,
                                         .profile = command.profile,
                                         .threads = command.threads,
                                         .quiet = command.json},
                                        job, train, cluster);
  const Solution solution =
      solve(job.graph, costs, cluster, solver_options(command, train, cluster));
  Plan plan = make_plan(train, job.graph, solution.placement, command.schedule);
  const ResolvedPlan resolved = resolve_plan(plan, job.graph, command.output);
  predict_with_alternatives(plan, job, resolved, costs, cluster);
  write_plan(plan, job.graph, command.output);
  const SimulatedStep step = simulate(job.graph, resolved.placement, costs, cluster,
                                      resolved.schedule, resolved.micro_batch_sizes);
  const Report report = make_report(
      plan, job.graph, resolved.placement,
      {.other = other_parameters(job.model),
       .measured = {},
       .seen_on_one_device = {},
       .bubbles = sum_bubbles(find_bubbles(resolved.schedule, step), plan.ranks.size())});
  write_views(command.views,
              {.plan = plan,
               .graph = job.graph,
               .resolved = resolved,
               .costs = costs,
               .step = step,
               .report = report},
              {fmt::format("Split into stages: {}.", proof_text(solution))});
  if (command.json) {
    nlohmann::json out = {{"code", 0},
                          {"plan", command.output},
                          {"plan_hash", plan_hash(plan)},
                          {"down_sets", solution.down_sets},
                          {"bottleneck_seconds", solution.bottleneck.seconds()},
                          {"proven_bound_seconds", solution.proven_bound.seconds()},
                          {"report", nlohmann::json::parse(to_json(report))}};
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{}\nwritten: {}; {}\n{}next: {}\n", summary_text(report), command.output,
             proof_text(solution), written_text(command.views),
             next_step(command, train, cluster, plan.stages.size()));
  return 0;
}

}  // namespace stagecraft
