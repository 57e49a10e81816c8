// The commands of `partition`: their options as parsed, and one function each that returns the exit
// code or throws Error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "file_arguments.h"
#include "models/config/model_config.h"
#include "partitioner/graph/graph.h"
#include "partitioner/page/page.h"
#include "partitioner/plan/plan.h"
#include "partitioner/solver/front.h"

namespace stagecraft {

// Flags that override the training file.
struct TrainFlags {
  std::optional<std::string> model, precision;
  std::optional<int64_t> width, height, batch, micro_batch;
  std::optional<std::string> what;  // what is trained
  bool sd_unlocked = false, only_mid_control = false;
};

// Files for people to look at; those without a name are not written.
struct ViewFiles {
  std::string html, trace;
};

struct PlanCommand {
  std::string config, cluster, output = "plan.yaml";
  std::string schedule = "any";  // a generator's name
  TrainFlags flags;
  bool any_micro_batch = false;
  bool profile = false;
  int threads = 1;                       // of a rank, for --profile
  std::string cost_table;                // file to save and reuse; empty: none
  int stages = 0;                        // 0: what is best, up to one per device
  std::vector<std::string> memory_caps;  // sizes; one for all ranks, or one per rank
  std::string prefer = "balanced";
  std::vector<std::string> fixed;  // "block=rank"
  bool no_recompute = false;
  std::optional<double> time_limit;  // seconds of all searching
  ViewFiles views;
  bool json = false;
};
int run_plan(const PlanCommand& command);
int run_compare(const PlanCommand& command);  // `output` and `views` are not written

struct GraphCommand {
  std::string model, precision = "fp32";
  int64_t width = 512, height = 512;
  TrainableConfig trainable;
  bool json = false;
};
int run_graph(const GraphCommand& command);

struct VerifyCommand {
  std::string plan, cluster, cost_table, output;
  bool json = false;
};
int run_verify(const VerifyCommand& command);

struct ReportCommand {
  std::string plan, measured;
  std::string cluster, cost_table;  // for the simulated step; empty: the plan's, and counted
  ViewFiles views;
  std::string seen_on_one_device;  // a size; empty: not seen
  bool json = false;
};
int run_report(const ReportCommand& command);

// As for a single output.
void check_outputs(const ViewFiles& views, Inputs inputs);

// `reasons` go before those that the report gives.
void write_views(const ViewFiles& views, const PageSources& sources,
                 const std::vector<std::string>& reasons);
std::string written_text(const ViewFiles& views);  // a line for each

// What a job means in data: the model file read and its training graph built.
struct PartitionJob {
  ModelConfig model;
  BlockGraph graph;
};
PartitionJob load_job(const TrainConfig& train);

// A job as planned: what planning and comparing share.
struct PlannedJob {
  TrainConfig train;
  Cluster cluster;
  PartitionJob job;
  ClusterCosts costs;
  Solution solution;
  Nanos fastest;                     // step of the fastest plan of the front
  std::string reason;                // of the choice among the plans of the front
  std::vector<std::string> outlook;  // what more would buy
  ResolvedPlan resolved;
  Plan plan;  // with predictions and alternatives
};
PlannedJob plan_job(const PlanCommand& command);

// Everything that a plan says beside what is run: `predict`, and the alternatives.
void predict_with_alternatives(Plan& plan, const PartitionJob& job, const ResolvedPlan& resolved,
                               const ClusterCosts& costs, const Cluster& cluster,
                               const SearchLimits& limits);

// Costs for the job: read from `file` when it is there, else measured or counted, and saved to
// `file` unless that is empty. A file, or a measurement, is of one kind of device: throws Error (2)
// when the cluster has several. Throws ConfigError (4) when the file holds costs of another job or
// device.
struct CostSource {
  std::string file;
  bool profile = false;
  int threads = 0;  // a rank will have; 0: not known, no warning about a table of another machine
  bool quiet = false;
};
ClusterCosts load_costs(const CostSource& source, const PartitionJob& job, const TrainConfig& train,
                        const Cluster& cluster);

}  // namespace stagecraft
