// `partition --config ... --cluster ... -o plan.yaml`: costs, search, plan, report.
#include <fmt/format.h>
#include <fmt/ranges.h>

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

// About the fastest plan, whichever was chosen.
std::string proof_text(const Solution& chosen, Nanos fastest) {
  const double gap =
      1 - static_cast<double>(chosen.proven_bound.count) / static_cast<double>(fastest.count);
  const bool is_chosen = chosen.step.makespan == fastest;
  if (gap <= 0)
    return fmt::format("{}no split of whole units has a shorter step",
                       is_chosen ? "proven: " : "the fastest is proven: ");
  return fmt::format("no split of whole units can be more than {:.1f} % faster{}", 100 * gap,
                     is_chosen ? "" : " than the fastest");
}

std::vector<std::string> reasons_text(const std::string& reason, const std::string& proof,
                                      const std::vector<std::string>& more) {
  std::vector<std::string> reasons{fmt::format("Chosen: {}; {}.", reason, proof)};
  for (const std::string& line : more) reasons.push_back(fmt::format("With {}.", line));
  return reasons;
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
    std::string with;
    if (!command.config.empty()) with = " --config " + command.config;
    if (command.any_micro_batch && !with.empty())
      with += fmt::format(" (with micro_batch: {} in it)", train.micro_batch);
    return fmt::format("pipetrain --plan {}{} --weights DIR --data DIR --out DIR", command.output,
                       with);
  }
  return "GPU ranks and half precision do not train yet; the same job for CPU ranks: " +
         cpu_plan_command(command, stages);
}

}  // namespace

int run_plan(const PlanCommand& command) {
  Inputs inputs = cluster_inputs(command.cluster);
  inputs.insert(inputs.end(), {{"training file", command.config},
                               {"model file", command.flags.model.value_or("")},
                               {"cost table", command.cost_table}});
  check_output("-o", command.output, inputs);
  check_outputs(command.views, [&] {
    Inputs others = inputs;
    others.emplace_back("plan", command.output);
    return others;
  }());
  const PlannedJob made = plan_job(command);
  const auto& [train, cluster, job, costs, solution, fastest, reason, more, resolved, plan] = made;
  const std::string proof = proof_text(solution, fastest);
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
              reasons_text(reason, proof, more));
  if (command.json) {
    nlohmann::json out = {{"code", 0},
                          {"plan", command.output},
                          {"plan_hash", plan_hash(plan)},
                          {"down_sets", solution.down_sets},
                          {"bottleneck_seconds", solution.bottleneck.seconds()},
                          {"proven_step_seconds", solution.proven_bound.seconds()},
                          {"gap", solution.gap()},
                          {"reason", reason},
                          {"outlook", more},
                          {"report", nlohmann::json::parse(to_json(report))}};
    fmt::print("{}\n", out.dump());
    return 0;
  }
  fmt::print("{}\nchosen: {}; {}\n", summary_text(report), reason, proof);
  if (!more.empty()) fmt::print("what more would buy:\n    {}\n", fmt::join(more, "\n    "));
  fmt::print("written: {}\n{}next: {}\n", command.output, written_text(command.views),
             next_step(command, train, cluster, plan.stages.size()));
  return 0;
}

}  // namespace stagecraft
