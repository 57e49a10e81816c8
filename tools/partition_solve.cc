// From flags to a plan with its predictions; what planning and comparing share.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "cli.h"
#include "partition_commands.h"
#include "partitioner/base/error.h"
#include "partitioner/base/format.h"
#include "partitioner/plan/make_plan.h"
#include "partitioner/solver/outlook.h"

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
  if (command.any_micro_batch) train.micro_batch = std::max<int64_t>(train.batch, 1);
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
  const std::vector<Bytes> caps = sizes_of(command.memory_caps);
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

bool parse_rank(const std::string& text, int& rank) {
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), rank);
  return fault == std::errc{} && end == text.data() + text.size() && rank >= 0;
}

std::vector<std::pair<int, int>> fixed_blocks(const PlanCommand& command, const BlockGraph& graph) {
  std::vector<std::pair<int, int>> fixed;
  for (const std::string& text : command.fixed) {
    const size_t equals = text.rfind('=');
    int rank = -1;
    if (equals == std::string::npos || !parse_rank(text.substr(equals + 1), rank)) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--fix {}: give block=rank, as unet.conv_in=0", text));
    }
    const int block = graph.find_block(text.substr(0, equals));
    if (block < 0) {
      throw Error(ExitCode::kUsage,
                  fmt::format("--fix {}: the model has no block {}; `partition graph` lists them",
                              text, text.substr(0, equals)));
    }
    fixed.emplace_back(block, rank);
  }
  return fixed;
}

// Micro-batch sizes to look at: the one of the job, or the divisors of the batch that are allowed.
std::vector<int64_t> micro_batches(const PlanCommand& command, const TrainConfig& train) {
  if (!command.any_micro_batch) return {train.micro_batch};
  if (!command.cost_table.empty()) {
    throw Error(ExitCode::kUsage,
                "--micro-batch any needs costs for every size, --cost-table holds one: leave one "
                "of them out");
  }
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size <= train.batch; ++size) {
    TrainConfig with = train;
    with.micro_batch = size;
    if (train.batch % size == 0 && validate(with).empty()) sizes.push_back(size);
  }
  return sizes;
}

FrontRequest front_request(const PlanCommand& command, const TrainConfig& train,
                           const BlockGraph& graph, std::vector<ClusterCosts> costs) {
  FrontRequest request{.costs = std::move(costs),
                       .schedules = command.schedule == "any"
                                        ? generator_names()
                                        : std::vector<std::string>{command.schedule},
                       .options = {.stages = command.stages,
                                   .batch = train.batch,
                                   .may_recompute = !command.no_recompute,
                                   .fixed = fixed_blocks(command, graph)},
                       .preference = parse_preference(command.prefer)};
  return request;
}

// `part` of the time limit from now on.
SearchLimits limits_of(const PlanCommand& command, double part) {
  if (!command.time_limit) return {};
  const std::chrono::duration<double> time(*command.time_limit * part);
  return {.nodes = std::numeric_limits<int64_t>::max(),
          .deadline = SearchLimits::Clock::now() +
                      std::chrono::duration_cast<SearchLimits::Clock::duration>(time)};
}

// What a search refuses as invalid was asked for on the command line.
Front front_of_flags(const BlockGraph& graph, const Cluster& cluster, const FrontRequest& request) {
  try {
    return find_front(graph, cluster, request);
  } catch (const ConfigError& refusal) {
    if (refusal.code() != ExitCode::kConfigInvalid) throw;
    throw Error(ExitCode::kUsage, fmt::format("with the flags given, {}", refusal.what()));
  }
}

std::vector<FrontPoint> front_points(const Front& front) {
  std::vector<FrontPoint> points;
  for (size_t i = 0; i < front.plans.size(); ++i) {
    const FrontPlan& plan = front.plans[i];
    points.push_back({.step = plan.solution.step.makespan,
                      .peak = plan.solution.peak(),
                      .stages = plan.solution.placement.stages(),
                      .micro_batch = plan.micro_batch,
                      .schedule = plan.schedule,
                      .recomputed = static_cast<int>(
                          std::ranges::count(plan.solution.placement.recompute, true)),
                      .relays = plan.solution.placement.relays,
                      .is_chosen = i == front.chosen});
  }
  return points;
}

}  // namespace

PlannedJob plan_job(const PlanCommand& command) {
  TrainConfig train = train_config(command);
  Cluster cluster = load_cluster(command.cluster);
  set_caps(cluster, command);
  PartitionJob job = load_job(train);
  std::vector<ClusterCosts> by_size;
  for (int64_t size : micro_batches(command, train)) {
    train.micro_batch = size;
    by_size.push_back(load_costs({.file = command.cost_table,
                                  .profile = command.profile,
                                  .threads = command.threads,
                                  .quiet = command.json},
                                 job, train, cluster));
  }
  // The front may use two thirds of the time; what else the plan says has the rest.
  const SearchLimits all_searching = limits_of(command, 1);
  FrontRequest request = front_request(command, train, job.graph, by_size);
  request.options.limits = limits_of(command, 2.0 / 3);
  Front front = front_of_flags(job.graph, cluster, request);
  request.options.limits = all_searching;
  std::vector<std::string> more = outlook(job.graph, cluster, request, front);
  FrontPlan chosen = front.plans[front.chosen];
  train.micro_batch = chosen.micro_batch;
  ClusterCosts costs = *std::ranges::find(by_size, chosen.micro_batch, &ClusterCosts::micro_batch);
  Plan plan = make_plan(train, job.graph, chosen.solution.placement, chosen.schedule);
  plan.front = front_points(front);
  ResolvedPlan resolved = resolve_plan(plan, job.graph, command.output);
  predict_with_alternatives(plan, job, resolved, costs, cluster, all_searching);
  return {.train = train,
          .cluster = std::move(cluster),
          .job = std::move(job),
          .costs = std::move(costs),
          .solution = std::move(chosen.solution),
          .fastest = front.plans.front().solution.step.makespan,
          .reason = std::move(front.reason),
          .outlook = std::move(more),
          .resolved = std::move(resolved),
          .plan = std::move(plan)};
}

}  // namespace stagecraft
