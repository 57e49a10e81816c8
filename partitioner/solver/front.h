// Plans worth choosing from: the front of step time against memory of the fullest rank, over
// splits, numbers of stages, schedules and micro-batch sizes.
//
// Deterministic for any number of threads unless a time limit is given. The arguments must outlive
// the call only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/solver/solver.h"

namespace stagecraft {

// What of the front is wanted.
enum class Preference {
  kTime,      // the shortest step
  kBalanced,  // the leanest whose step is at most kBalancedSlowdown times the shortest
  kMemory,    // the leanest
};
inline constexpr double kBalancedSlowdown = 1.05;
Preference parse_preference(const std::string& text);  // "time", "balanced", "memory"; ConfigError

struct FrontRequest {
  std::vector<ClusterCosts> costs;     // one for each micro-batch size to look at
  std::vector<std::string> schedules;  // generators to look at, the leanest first
  // `stages` 0: any number up to one per device. Schedule and micro-batch are taken from above.
  SolverOptions options;
  Preference preference = Preference::kBalanced;
};

struct FrontPlan {
  Solution solution;
  std::string schedule;
  int64_t micro_batch = 1;
};

struct Front {
  std::vector<FrontPlan> plans;  // by step; none is beaten in both step and peak
  size_t chosen = 0;
  std::string reason;  // of the choice, one sentence with the numbers
};

// Throws as `solve` does, with the explanation for the most stages and the first costs when nothing
// fits.
Front find_front(const BlockGraph& graph, const Cluster& cluster, const FrontRequest& request);

}  // namespace stagecraft
