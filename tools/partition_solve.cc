// From flags to a plan with its predictions; what planning and comparing share.
#include <fmt/format.h>

#include "partition_commands.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/plan/make_plan.h"

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

// A cap takes the place of the device's memory, for the plan and for all that stands beside it.
void set_caps(Cluster& cluster, const PlanCommand& command) {
  std::vector<Bytes> caps;
  for (const std::string& cap : command.memory_caps) {
    caps.push_back(parse_size(cap).value());  // the command line checked it
  }
  const size_t ranks =
      command.stages > 0 ? static_cast<size_t>(command.stages) : cluster.devices.size();
  if (caps.size() > 1 && caps.size() != ranks) {
    throw Error(ExitCode::kUsage,
                fmt::format("--memory-cap gives {} values; give one, or one for each of {} ranks",
                            caps.size(), ranks));
  }
  if (caps.size() == 1) {
    for (Device& device : cluster.devices) device.memory = caps.front();
    return;
  }
  for (size_t r = 0; r < caps.size() && r < cluster.devices.size(); ++r) {
    cluster.devices[r].memory = caps[r];
  }
}

}  // namespace

PlannedJob plan_job(const PlanCommand& command) {
  const TrainConfig train = train_config(command);
  Cluster cluster = load_cluster(command.cluster);
  set_caps(cluster, command);
  PartitionJob job = load_job(train);
  ClusterCosts costs = load_costs({.file = command.cost_table,
                                   .profile = command.profile,
                                   .threads = command.threads,
                                   .quiet = command.json},
                                  job, train, cluster);
  Solution solution = solve(job.graph, costs, cluster,
                            {.stages = command.stages,
                             .schedule = command.schedule,
                             .memory_caps = {},
                             .batch = train.batch,
                             .micro_batch = train.micro_batch});
  Plan plan = make_plan(train, job.graph, solution.placement, command.schedule);
  ResolvedPlan resolved = resolve_plan(plan, job.graph, command.output);
  predict_with_alternatives(plan, job, resolved, costs, cluster);
  return {.train = train,
          .cluster = std::move(cluster),
          .job = std::move(job),
          .costs = std::move(costs),
          .solution = std::move(solution),
          .resolved = std::move(resolved),
          .plan = std::move(plan)};
}

}  // namespace stagecraft
