// Brings the trained weights together: every rank streams to rank 0, tensor by tensor; no shared disk is needed and no
// rank holds the whole.
#pragma once

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

// Collective: called by all ranks at the same point. Rank 0 writes `folder`/<part>/ for each trained part, whole parts
// (frozen parameters too), as folders that diffusers' from_pretrained loads. Throws InputError(kIo) on rank 0, CommError.
void save_trained_parts(const BlockGraph& graph, const Placement& placement, const ModelConfig& model,
                        const RankParameters& parameters, Communicator& comm,
                        const std::string& folder);

}  // namespace stagecraft
