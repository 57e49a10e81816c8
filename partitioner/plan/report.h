// The memory-balance report: what every rank holds, predicted and measured, how even that is, and
// what one device alone or data parallel would need for the same training.
//
// Plain values and pure functions, any thread. Data parallel is explained in plan/ddp.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "partitioner/plan/ddp.h"
#include "partitioner/plan/measured.h"
#include "partitioner/plan/plan.h"
#include "partitioner/simulate/bubbles.h"

namespace stagecraft {

struct ReportRank {
  std::vector<int> stages;
  std::vector<std::string> blocks;  // in block position, replicated ones included
  PlannedRank predicted;
  double time_share = 0;  // of the busy time of all ranks
  std::optional<MeasuredRank> measured;
  std::optional<BubbleSums> bubbles;  // where the step was simulated
};

// max / mean over the ranks; 1 is perfectly even.
struct Balance {
  double time = 1, memory = 1;
};

struct Report {
  std::string title;  // model, pixels, precision, batch, schedule, cluster
  std::string cost_table;
  std::vector<ReportRank> ranks;
  Nanos step;
  double bubble = 0;
  Balance balance;
  std::optional<Nanos> measured_step;
  std::optional<double> measured_bubble;  // 1 - sum(busy) / (ranks * step)
  std::optional<Balance> measured_balance;
  PlannedRank one_device, data_parallel;  // done right
  MemoryAccount known_trainers, done_right;
  std::vector<FrontPoint> front;
  std::vector<Alternative> alternatives;
  // Peak that the user saw on one device with a known trainer; data parallel needs the buckets
  // more.
  std::optional<Bytes> seen_on_one_device;
};

struct ReportOptions {
  OtherParameters other;
  std::optional<Measured> measured;
  std::optional<Bytes> seen_on_one_device;
  std::vector<BubbleSums> bubbles;  // by rank; empty: not simulated
};

// Throws ConfigError: a plan without predictions (3), measurements of another plan (4).
Report make_report(const Plan& plan, const BlockGraph& graph, const Placement& placement,
                   const ReportOptions& options);

// Several lines, each ended.
std::string balance_text(const Report& report);  // the ranks and how even they are
std::string to_text(const Report& report);       // that, and one device and data parallel
std::string to_json(const Report& report);       // one line without an end

}  // namespace stagecraft
