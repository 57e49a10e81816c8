// Replays the interpreter's allocations inside one block, operation by operation, to find its
// peaks.
//
// Pure functions, any thread. Rules and the experiments behind them: docs/cost-model.md,
// "Workspace".
#pragma once

#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

struct ReplayOptions {
  int64_t batch = 1;
  int64_t parameter_size = 4;  // bytes of one parameter at compute precision
  bool cuda = false;           // which library's scratch to count
  AttentionKernel attention = AttentionKernel::kFlash;
};

struct BlockWorkspace {
  int64_t forward = 0;   // bytes above the block's inputs, its output and what it keeps
  int64_t backward = 0;  // bytes above what lived before and the gradients of its inputs
};

// `needs_grad` by local tensor: it carries a gradient; `saved` by local tensor: kept for the
// backward pass.
BlockWorkspace replay_block(const Block& block, const std::vector<bool>& needs_grad,
                            const std::vector<bool>& saved, const ReplayOptions& options);

}  // namespace stagecraft
