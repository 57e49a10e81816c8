// plan.yaml: how a model is split, made to be read and edited by hand. Versioned.
//
// Plain values; reading is strict and reports all faults of a file with line and column. Any
// thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/placement.h"
#include "partitioner/plan/study.h"
#include "partitioner/plan/train_config.h"
#include "partitioner/schedule/schedule.h"
#include "partitioner/simulate/memory_model.h"

namespace stagecraft {

inline constexpr int kPlanVersion = 1;

struct PlanStage {
  int rank = 0;
  std::vector<std::string> blocks;  // names, in block position
  bool operator==(const PlanStage&) const = default;
};

struct PlannedRank {  // predicted, informative: recomputed by whoever needs it
  std::string device;
  Bytes device_memory;
  Nanos busy;
  RankMemory memory;
  bool operator==(const PlannedRank&) const = default;

  // The part of the device's memory that is taken; the fullest rank has most of it.
  double fullness() const { return memory.total().mib() / device_memory.mib(); }
};

struct Plan {
  int version = kPlanVersion;
  TrainConfig train;  // what the plan depends on; optimizer, steps and seed are not part of it
  std::string graph_hash;
  std::string cluster;  // name
  int replicas = 1;
  std::string schedule = "1f1b";  // generator name, or "explicit"
  bool relays = false;            // transfers: relayed (docs/schedule.md)
  std::vector<std::vector<std::string>>
      order;  // explicit: per rank "F0.0 F0.1 B0.0 …", compute actions, or with S and R
  std::vector<PlanStage> stages;
  std::vector<std::string> replicated;
  std::vector<std::string> recompute;
  std::string cost_table;  // "measured on …" or "analytic for …"
  Nanos predicted_step;
  double predicted_bubble = 0;
  std::vector<PlannedRank> ranks;
  // The same training on the largest device alone, and under data parallel done right on all of
  // them (the device that is nearest to its memory); `busy` is the step.
  PlannedRank one_device, data_parallel;
  MoreMicroBatches more;
  std::vector<FrontPoint> front;  // by step
  std::vector<Alternative> alternatives;
  // The message table of one full micro-batch (`transfers_of_micro_batch`), informative; compared
  // with the derived one on load. Message n of micro-batch j has the number j * messages.size() + n
  // in an explicit order.
  std::vector<Message> messages;
  bool operator==(const Plan&) const = default;
};

// The schedule, and how values travel where that is not straight, for people.
std::string schedule_text(const Plan& plan);
// "batch 7 as micro-batches of 3, the last of 1"
std::string batch_text(const Plan& plan);

std::string to_yaml(const Plan& plan, const BlockGraph& graph);
void write_plan(const Plan& plan, const BlockGraph& graph,
                const std::string& path);  // beside and renamed; InputError(kIo)

// The part of a plan that can be read without a graph: structure, types, ranges. Relative model
// paths are relative to the file.
Plan read_plan(const std::string& path);

// A plan made ready to run: everything derived again and verified.
struct ResolvedPlan {
  Placement placement;
  std::vector<int64_t> micro_batch_sizes;
  Schedule schedule;
};
// Throws ConfigError (exit 3; 4 when the graph hash differs) with all faults at once, each with
// line and column of the block or key in the file: missing, duplicate, unknown block, edge against
// stage order, order that deadlocks (with the wait-for cycle), message table that differs.
ResolvedPlan resolve_plan(const Plan& plan, const BlockGraph& graph, const std::string& path);

// Hex SHA-256 of what must be equal on all ranks: stages, schedule, order, train part, graph hash.
std::string plan_hash(const Plan& plan);

}  // namespace stagecraft
