// A rehearsal made ready: the plan, what its blocks take, and what the ranks should come to.
//
// Plain values. The launcher's process and every rank make the same one from the same options.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "partitioner/cost/cluster_costs.h"
#include "partitioner/cost/device.h"
#include "partitioner/graph/graph.h"
#include "partitioner/plan/plan.h"
#include "partitioner/simulate/memory_model.h"
#include "partitioner/simulate/simulator.h"

namespace stagecraft {

struct RehearsalOptions {
  std::string plan{}, cluster{};  // files
  std::string cost_table{};       // file; empty: counted for the cluster's devices
  int64_t steps = 10;             // that count, after one that does not
  double scale = 1;               // of the blocks' times
  double scale_memory = 1;  // of what parameters and saved tensors hold; 0: blocks keep nothing
  std::string trace{};      // file for the last step's timeline; empty: none
  std::string measured{};   // measured.json; empty: none
  int64_t timeout_seconds = 600;  // of any single wait for a peer
  bool json = false;
};

struct Rehearsal {
  RehearsalOptions options;
  ModelConfig model;
  Plan plan;
  BlockGraph graph;
  ResolvedPlan resolved;
  Cluster cluster;
  ClusterCosts costs;              // scaled
  std::string block_times;         // where they are from: "analytic for cpu"
  SimulatedStep planned;           // with these costs, on the cluster's links
  std::vector<RankMemory> memory;  // with these costs, parameters scaled too

  int ranks() const { return resolved.placement.ranks(); }
};

// Throws ConfigError (3, 4) and InputError for the files.
Rehearsal load_rehearsal(const RehearsalOptions& options);

// What a rank's allocator is to hold at most: everything but the process itself, the transport's
// buffers and slack.
Bytes held_bytes(const RankMemory& memory);
// Of that, parameters with their gradients and moments: held all the time.
Bytes static_bytes(const RankMemory& memory);

// Throws ResourceError (13), with a --scale-memory that fits, when the ranks together would take
// more than most of `available`.
void require_room(const Rehearsal& rehearsal, Bytes available);

// The same costs, of the first `ranks` ranks: times by `time`, what blocks save and their scratch
// by `memory`; with 0 no block keeps its inputs or output either.
ClusterCosts scaled_costs(const ClusterCosts& costs, int ranks, double time, double memory);

}  // namespace stagecraft
