// The optimizer step of one rank: global norm, clipping, AdamW.
//
// All ranks call it at the same point; the control channel carries the norm gather. AdamW:
// Loshchilov & Hutter (2019), LibTorch's fused kernel. Clipping as torch.nn.utils.clip_grad_norm_:
// g * min(1, max_norm / (norm + 1e-6)).
#pragma once

#include "partitioner/plan/train_config.h"
#include "pipeline/comm/communicator.h"
#include "pipeline/exec/rank_parameters.h"

namespace stagecraft {

// Learning rate of step `step` (0-based): linear warm-up, step / warmup_steps of it (0 in step 0,
// as diffusers' constant_with_warmup), then constant.
double learning_rate_at(const OptimizerConfig& config, int64_t step);

// L2 norm over the gradients of all ranks. Squares are summed in float64 within a parameter, then
// in canonical parameter order, so that every rank gets the same bits for any number of stages.
// Blocks (one all_gather).
double global_gradient_norm(const RankParameters& parameters, ControlChannel& control,
                            int64_t step);

// Clips by `norm` and updates every trained parameter that has a gradient. Throws Error(kNonFinite)
// before anything changed when `norm` is not finite.
void optimizer_step(RankParameters& parameters, const OptimizerConfig& config, double norm,
                    int64_t step);

}  // namespace stagecraft
