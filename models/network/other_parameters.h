// Sizes of the networks that training uses but does not place: VAE and text encoder. Pure function,
// any thread.
#pragma once

#include "models/config/model_config.h"
#include "partitioner/plan/ddp.h"

namespace stagecraft {

// Elements, for the report; encoder and decoder of the VAE together.
OtherParameters other_parameters(const ModelConfig& model);

}  // namespace stagecraft
