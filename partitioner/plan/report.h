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
  int64_t batch = 1;  // samples
  Nanos step;
  double bubble = 0;
  MoreMicroBatches more;
  Balance balance;
  std::optional<Nanos> measured_step;
  std::optional<double> measured_bubble;  // 1 - sum(busy) / (ranks * step)
  std::optional<Balance> measured_balance;
  PlannedRank one_device, data_parallel;  // done right
  MemoryAccount known_trainers, done_right;
  std::vector<FrontPoint> front;
  Alternative as_way;  // this plan, beside them
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

// Several lines, each ended: first what a step takes and whether it fits, last a table of the
// ranks. Between them what each rank holds and how even that is,
std::string balance_text(const Report& report);
// with the other ways to train the same, and advice,
std::string summary_text(const Report& report);
// and with the accounts of the known trainers, and of one device and data parallel done right.
std::string to_text(const Report& report);
std::string to_json(const Report& report);  // one line without an end

}  // namespace stagecraft
