// Convolution, linear layer and the gated activations as autograd functions that save only what
// their backward needs.
//
// Stock autograd keeps a frozen convolution's input for nothing, and both halves of a GEGLU three
// times over. Here the input is saved only when the weight requires a gradient, the weight only
// when the input does, and an activation keeps its input alone. Nothing is saved under NoGradGuard.
// Backward computes the gradients that the running engine call asks for and no others, so input and
// weight gradients may be asked for in two calls (the first with the graph retained); the bits are
// those of one call. First derivatives only. Stateless, any thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace stagecraft {

// x [N,Ci,H,W], weight [Co,Ci,k,k], bias [Co] or undefined -> [N,Co,H',W'].
at::Tensor conv2d(const at::Tensor& x_nchw, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding);

// x [..,I] contiguous, weight [O,I], bias [O] or undefined -> [..,O].
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// x [..,2C] -> x[.., :C] * gelu(x[.., C:]), exact (erf) GELU.
at::Tensor geglu(const at::Tensor& x);

// x * sigmoid(1.702 x).
at::Tensor quick_gelu(const at::Tensor& x);

}  // namespace stagecraft
