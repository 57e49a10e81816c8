// Brings the trained weights together: every rank streams to rank 0, tensor by tensor; no shared
// disk is needed and no rank holds the whole.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"
#include "pipeline/comm/communicator.h"
#include "pipeline/exec/rank_parameters.h"

namespace stagecraft {

// Parts of the model with something trainable in them: "controlnet", "unet"; in this order.
std::vector<std::string> trained_parts(const BlockGraph& graph);

// Where the weights come from and go to.
struct SavedTraining {
  const BlockGraph& graph;
  const Placement& placement;
  const ModelConfig& model;
  const RankParameters& parameters;
  std::string folder;
};

// Collective: called by all ranks at the same point. Rank 0 writes `folder`/<part>/ for each
// trained part, whole parts (frozen parameters too), as folders that diffusers' from_pretrained
// loads. `on_tensor` after each tensor. Throws InputError(kIo) on rank 0, CommError.
void save_trained_parts(const SavedTraining& what, Communicator& comm,
                        const std::function<void()>& on_tensor);

// Whether `folder` holds weights of one of the parts, in whatever format: ours or somebody else's.
bool has_trained_parts(const BlockGraph& graph, const std::string& folder);

}  // namespace stagecraft
