// Replicas of a pipeline with fewer stages: each trains on a part of the batch, and the gradients
// of a stage are summed over the ring of the devices that hold it.
//
// Pure functions, any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/alternatives/training_job.h"
#include "partitioner/graph/placement.h"
#include "partitioner/simulate/memory_model.h"

namespace stagecraft {

struct ReplicatedPipeline {
  int replicas = 1, stages = 1;
  int64_t samples = 1;  // of the fullest replica
  int rank = 0;         // whose memory is nearest to its device's, or the furthest above
  RankMemory memory;    // of that rank
  Nanos step;
  Nanos exposed;  // part of the step: sums after all computing is over
};

// Replica r has ranks r * stages, ..., all of them split as `placement` (stages on ranks 0, 1,
// ...). A stage's sum goes bucket by bucket, from the backward pass of its last micro-batch on,
// beside what the other stages still compute and send: links are taken to carry both.
ReplicatedPipeline replicate(const TrainingJob& job, const Placement& placement, int replicas,
                             const std::string& schedule);

// Numbers of stages that `devices` divide into equal replicas of, more than one replica of more
// than one stage: 12 gives 2, 3, 4, 6.
std::vector<int> stages_of_replicas(int devices);

}  // namespace stagecraft
