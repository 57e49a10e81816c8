// What people see of a plan: one HTML file with headline, memory, timeline, front, alternatives and
// blocks. docs/report-page.md describes it.
//
// Plain values and pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/cost/cluster_costs.h"
#include "partitioner/plan/plan.h"
#include "partitioner/plan/report.h"
#include "partitioner/simulate/bubbles.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

struct PageBlock {
  std::string name;
  int stage = -1;  // -1: replicated
  std::string state;
  int64_t parameters = 0;
  bool trainable = false, recompute = false;
  Nanos forward, backward;  // of one micro-batch, recomputation left out
  Bytes saved;              // from forward to backward, inputs of the block left out
};

struct PageAction {  // of a rank, computing
  std::string text;  // "F0.2"
  ActionKind kind{};
  int stage = 0, micro_batch = 0;
  Nanos start, end;
  Nanos recompute;  // part of it in which forwards run again
};

struct PageMessage {
  int number = 0;
  Direction direction{};
  int from_rank = 0, to_rank = 0, micro_batch = 0;
  Bytes bytes;
  Nanos start, end;  // of its way through the link
};

struct Page {
  std::string model;                 // as the model file names it
  std::string job;                   // what is trained, on what
  std::vector<std::string> reasons;  // a sentence each: why this plan
  std::vector<std::string> notes;    // a sentence each: what the numbers are not
  Report report;
  Nanos makespan;
  std::vector<std::vector<PageAction>> actions;  // by rank
  std::vector<PageMessage> messages;
  std::vector<Bubble> bubbles;
  std::vector<PageBlock> blocks;
};

struct PageSources {
  const Plan& plan;
  const BlockGraph& graph;
  const ResolvedPlan& resolved;
  const ClusterCosts& costs;  // made for the graph
  const SimulatedStep& step;
  const Report& report;
};
Page make_page(const PageSources& sources);

// The sentences of Page::reasons that follow from the report: what fits, where the plan stands on
// the front, and what the alternatives take.
std::vector<std::string> reasons_of(const Report& report);

// The whole file. Names stay text in it, whatever they hold. All text is UTF-8, as in files that
// were read strictly.
std::string to_html(const Page& page);

}  // namespace stagecraft
