// Files to data: job, cluster, costs.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "models/network/build.h"
#include "partition_commands.h"
#include "partitioner/base/error.h"
#include "partitioner/cost/analytic.h"
#include "pipeline/profile/profiler.h"

namespace stagecraft {
namespace {

CostTable measure(const PartitionJob& job, const TrainConfig& train, const Cluster& cluster,
                  const CostSource& source) {
  if (cluster.devices.front().kind != "cpu") {
    throw Error(ExitCode::kUsage,
                fmt::format("--profile measures on this machine's CPU, cluster {} has {}; leave "
                            "--profile out to count for its devices",
                            cluster.name, cluster.devices.front().name));
  }
  at::set_num_threads(source.threads);
  ProfileOptions options;
  if (!source.quiet && ::isatty(STDERR_FILENO) == 1) {
    options.on_progress = [](int done, int all) {
      fmt::print(stderr, "\rmeasuring block {} of {}{}", done, all, done == all ? "\n" : "");
    };
  }
  Profile profile = measure_blocks(job.graph, train, options);
  if (const std::string warning = busy_warning(profile.quality); !warning.empty()) {
    fmt::print(stderr, "{}\n", warning);
  }
  profile.table.device = cluster.devices.front().name;
  return std::move(profile.table);
}

// One table cannot tell how fast a device of another kind is.
void refuse_mixed_devices(const CostSource& source, const Cluster& cluster) {
  const Device& first = cluster.devices.front();
  const std::vector<int> kinds = cluster.kinds();
  const auto other = std::ranges::find_if(kinds, [](int kind) { return kind > 0; });
  if (other == kinds.end() || (!source.profile && source.file.empty())) return;
  const char* flag = source.profile ? "--profile" : "--cost-table";
  throw Error(ExitCode::kUsage,
              fmt::format("{0} has the costs of one kind of device, cluster {1} mixes {2} and {3}; "
                          "leave {0} out to count for each",
                          flag, cluster.name, first.name,
                          cluster.devices[static_cast<size_t>(other - kinds.begin())].name));
}

void warn_when_stale(const CostTable& table, const std::string& file, int threads) {
  if (threads == 0) return;
  at::set_num_threads(threads);
  // describe_machine tells the number of threads as it is set now.
  if (table.made_by != "measured" || table.machine == describe_machine()) return;
  fmt::print(stderr, "warning: {} was measured on {}, this is {}\n", file, table.machine,
             describe_machine());
}

}  // namespace

PartitionJob load_job(const TrainConfig& train) {
  PartitionJob job{.model = read_model_config(train.model), .graph = {}};
  job.graph =
      build_training_graph(job.model, train.width, train.height, train.trainable, train.precision);
  return job;
}

ClusterCosts load_costs(const CostSource& source, const PartitionJob& job, const TrainConfig& train,
                        const Cluster& cluster) {
  refuse_mixed_devices(source, cluster);
  if (!source.file.empty() && std::filesystem::exists(source.file)) {
    CostTable table = read_cost_table(source.file);
    const bool wanted = table.made_by == "measured" || !source.profile;
    if (wanted) {
      check_cost_table(table, job.graph,
                       {.device = cluster.devices.front().name,
                        .precision = train.precision,
                        .micro_batch = train.micro_batch});
      warn_when_stale(table, source.file, source.threads);
      if (!source.quiet)
        fmt::print("costs from {}: {}, {}\n", source.file, table.made_by, table.machine);
      return ClusterCosts(std::move(table));
    }
  }
  ClusterCosts costs = source.profile ? ClusterCosts(measure(job, train, cluster, source))
                                      : analytic_cluster_costs(job.graph, cluster, train.precision,
                                                               train.micro_batch);
  if (!source.file.empty()) write_cost_table(costs.of_kind(0), source.file);
  return costs;
}

}  // namespace stagecraft
