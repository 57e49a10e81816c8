// How much one operation computes and moves, counted from shapes and dtypes; docs/cost-model.md has
// the table.
//
// Pure functions, any thread. A multiply-add is two operations. Bytes are those that must cross the
// device memory when nothing stays in a cache: each operand read once (twice where the operation
// makes two passes), the result written once.
#pragma once

#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

enum class WorkKind {
  kElementwise,
  kMatmul,
  kConv,
  kAttention,
  kFp32Matmul  // a product that is computed in fp32 at any precision
};  // which efficiency factor applies

struct OpWork {
  WorkKind kind = WorkKind::kElementwise;
  double flops = 0;
  double bytes = 0;
  int launches = 0;  // kernels, each with the device's launch overhead
};

// What the counting needs to know beside the operation.
struct WorkContext {
  const Block& block;
  int64_t batch = 1;           // samples
  int64_t parameter_size = 4;  // bytes of one parameter at compute precision
  AttentionKernel attention = AttentionKernel::kFlash;
};

OpWork forward_work(const WorkContext& context, const Op& op);
// Gradients of those inputs of `op` for which `needed` (by local tensor) is true. Nothing is moved
// for an operation that hands its output's gradient on as it is (an addition, a view).
OpWork input_gradient_work(const WorkContext& context, const Op& op,
                           const std::vector<bool>& needed);
// Gradients of all parameters of `op`.
OpWork weight_gradient_work(const WorkContext& context, const Op& op);

// Bytes of a local tensor of `block` for `batch` samples.
int64_t tensor_bytes(const Block& block, int tensor, int64_t batch);
// Elements of the parameters of `op`.
int64_t parameter_elements(const Block& block, const Op& op);

}  // namespace stagecraft
