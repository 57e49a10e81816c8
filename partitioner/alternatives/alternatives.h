// Every other way to train the same on the same devices, side by side.
//
// Pure function, any thread. Formulas and sources: docs/alternatives.md.
#pragma once

#include <string>
#include <vector>

#include "partitioner/alternatives/training_job.h"
#include "partitioner/plan/ddp.h"
#include "partitioner/plan/study.h"
#include "partitioner/solver/step_search.h"

namespace stagecraft {

// One device as known trainers do it and done right; with more than one device data parallel
// likewise, the sharded optimizer, and replicas of pipelines of 2 to `kMaxReplicaStages` stages
// that divide the devices. `schedule` is the pipelines' generator. A pipeline is split by the
// solver, within `limits.part` for each; where nothing fits, or no time is left, by the least
// largest stage, to say what it would need.
inline constexpr int kMaxReplicaStages = 8;
std::vector<Alternative> find_alternatives(const TrainingJob& job, const OtherParameters& other,
                                           const std::string& schedule,
                                           const SearchLimits& limits = {});

}  // namespace stagecraft
