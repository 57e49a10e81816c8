// A training job made ready: files read, graph built, plan resolved. The launcher's process, the
// encoder and every rank make the same one from the same options.
#pragma once

#include <memory>
#include <vector>

#include "models/config/model_config.h"
#include "models/weights/weight_source.h"
#include "partitioner/graph/graph.h"
#include "partitioner/plan/plan.h"
#include "pipeline/train/train_options.h"

namespace stagecraft {

struct Job {
  TrainOptions options;
  ModelConfig model;
  Plan plan;
  BlockGraph graph;
  ResolvedPlan resolved;
  std::string checkpoint;  // to go on from, chosen by the launcher's process; empty: none
};

// Throws ConfigError (3 or 4) for the plan and model files, and for a precision that CPU ranks do
// not train.
Job load_job(const TrainOptions& options);

// Whose parameters are read: UNet and ControlNet by the ranks, VAE and text encoder by the encoder.
enum class WeightUse { kEverything, kTraining, kEncoding };

// Opens the parts in use, names and shapes checked. Throws InputError.
std::unique_ptr<WeightSource> open_weights(const Job& job, WeightUse use);

}  // namespace stagecraft
