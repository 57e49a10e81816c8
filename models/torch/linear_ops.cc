#include "models/torch/linear_ops.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {
namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Shape and dtype of a tensor whose values the backward kernel does not read. The kernels take both
// operands, if only for their sizes; this one owns no memory.
struct Shell {
  std::vector<int64_t> sizes;
  at::TensorOptions options;

  explicit Shell(const at::Tensor& t) : sizes(t.sizes().vec()), options(t.options()) {}
  at::Tensor tensor() const {
    at::Tensor empty = at::empty({0}, options);
    empty.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
    return empty;
  }
};

bool wants_grad(const at::Tensor& t) { return t.defined() && t.requires_grad(); }

// What convolution and linear layer have in common: inputs x, weight, bias; edges in that order.
class AffineBackward : public Node {
 public:
  AffineBackward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias)
      : x_shell_(x), weight_shell_(weight) {
    if (wants_grad(weight) || wants_grad(bias)) x_ = SavedVariable(x, /*is_output=*/false);
    if (wants_grad(x)) weight_ = SavedVariable(weight, /*is_output=*/false);
    set_next_edges(torch::autograd::collect_next_edges(x, weight, bias));
  }

  variable_list apply(variable_list&& grads) final {
    const at::Tensor& grad = grads.at(0);
    if (!grad.defined()) return variable_list(3);
    const std::array<bool, 3> mask = {task_should_compute_output(0), task_should_compute_output(1),
                                      task_should_compute_output(2)};
    at::Tensor x, weight;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      check(!released_, "a block's backward ran twice without retaining its graph");
      x = mask[1] || mask[2] ? x_.unpack() : x_shell_.tensor();
      weight = mask[0] ? weight_.unpack() : weight_shell_.tensor();
    }
    const at::NoGradGuard no_second_derivative;
    return gradients(grad.contiguous(), x, weight, mask);
  }

  void release_variables() final {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
    released_ = true;
  }

 protected:
  virtual variable_list gradients(const at::Tensor& grad, const at::Tensor& x,
                                  const at::Tensor& weight, std::array<bool, 3> mask) const = 0;

 private:
  SavedVariable x_, weight_;
  Shell x_shell_, weight_shell_;
  bool released_ = false;
};

class ConvBackward final : public AffineBackward {
 public:
  ConvBackward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
               int64_t stride, int64_t padding)
      : AffineBackward(x, weight, bias), stride_(stride), padding_(padding) {}
  std::string name() const override { return "StagecraftConvBackward"; }

 private:
  variable_list gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                          std::array<bool, 3> mask) const override {
    const std::array<int64_t, 1> bias_sizes = {weight.size(0)};
    auto [grad_x, grad_weight, grad_bias] = at::convolution_backward(
        grad, x, weight, at::OptionalIntArrayRef(bias_sizes), {stride_, stride_},
        {padding_, padding_}, {1, 1}, /*transposed=*/false, {0, 0}, /*groups=*/1, mask);
    return {grad_x, grad_weight, grad_bias};
  }

  int64_t stride_, padding_;
};

class LinearBackward final : public AffineBackward {
 public:
  using AffineBackward::AffineBackward;
  std::string name() const override { return "StagecraftLinearBackward"; }

 private:
  variable_list gradients(const at::Tensor& grad, const at::Tensor& x, const at::Tensor& weight,
                          std::array<bool, 3> mask) const override {
    const at::Tensor grad_rows = grad.reshape({-1, grad.size(-1)});
    variable_list result(3);
    if (mask[0]) result[0] = grad_rows.mm(weight).view(x.sizes());
    if (mask[1]) result[1] = grad_rows.t().mm(x.reshape({-1, x.size(-1)}));
    if (mask[2]) result[2] = grad_rows.sum(0);
    return result;
  }
};

// An activation whose backward needs its input and nothing else.
class ActivationBackward : public Node {
 public:
  explicit ActivationBackward(const at::Tensor& x) : x_(x, /*is_output=*/false) {
    set_next_edges(torch::autograd::collect_next_edges(x));
  }

  variable_list apply(variable_list&& grads) final {
    if (!grads.at(0).defined() || !task_should_compute_output(0)) return variable_list(1);
    at::Tensor x;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      x = x_.unpack();
    }
    const at::NoGradGuard no_second_derivative;
    return {gradient(grads[0], x)};
  }

  void release_variables() final {
    std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
  }

 protected:
  virtual at::Tensor gradient(const at::Tensor& grad, const at::Tensor& x) const = 0;

 private:
  SavedVariable x_;
};

const char* gelu_form() { return made(Mistake::kTanhGelu) ? "tanh" : "none"; }

class GegluBackward final : public ActivationBackward {
 public:
  using ActivationBackward::ActivationBackward;
  std::string name() const override { return "StagecraftGegluBackward"; }

 private:
  at::Tensor gradient(const at::Tensor& grad, const at::Tensor& x) const override {
    const int64_t width = x.size(-1) / 2;
    const at::Tensor value = x.narrow(-1, 0, width), gate = x.narrow(-1, width, width);
    at::Tensor grad_x = at::empty_like(x);
    at::Tensor grad_value = grad_x.narrow(-1, 0, width);
    at::Tensor grad_gate = grad_x.narrow(-1, width, width);
    at::mul_out(grad_value, grad, at::gelu(gate, gelu_form()));
    grad_gate.copy_(at::gelu_backward(grad * value, gate, gelu_form()));
    return grad_x;
  }
};

class QuickGeluBackward final : public ActivationBackward {
 public:
  using ActivationBackward::ActivationBackward;
  std::string name() const override { return "StagecraftQuickGeluBackward"; }

 private:
  at::Tensor gradient(const at::Tensor& grad, const at::Tensor& x) const override {
    const at::Tensor s = at::sigmoid(x * 1.702);
    return grad * (s + x * 1.702 * s * (1.0 - s));
  }
};

// Runs `forward` without recording it and, when autograd is on and an input wants a gradient, hangs
// the node that `backward` makes behind its result.
template <typename Forward, typename Backward>
at::Tensor record(bool needs_gradient, const Forward& forward, const Backward& backward) {
  std::shared_ptr<Node> node;
  if (needs_gradient && at::GradMode::is_enabled()) {
    node = std::shared_ptr<Node>(backward(), torch::autograd::deleteNode);
  }
  at::Tensor result;
  {
    const at::NoGradGuard unrecorded;
    result = forward();
  }
  if (node) torch::autograd::set_history(result, node);
  return result;
}

bool any_wants_grad(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return wants_grad(x) || wants_grad(weight) || wants_grad(bias);
}

}  // namespace

at::Tensor conv2d(const at::Tensor& x_nchw, const at::Tensor& weight, const at::Tensor& bias,
                  int64_t stride, int64_t padding) {
  return record(
      any_wants_grad(x_nchw, weight, bias),
      [&] { return at::conv2d(x_nchw, weight, bias, stride, padding); },
      [&] { return new ConvBackward(x_nchw, weight, bias, stride, padding); });
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return record(
      any_wants_grad(x, weight, bias),
      [&] { return bias.defined() ? at::linear(x, weight, bias) : at::linear(x, weight); },
      [&] { return new LinearBackward(x, weight, bias); });
}

at::Tensor geglu(const at::Tensor& x) {
  return record(
      wants_grad(x),
      [&] {
        const int64_t width = x.size(-1) / 2;
        return x.narrow(-1, 0, width) * at::gelu(x.narrow(-1, width, width), gelu_form());
      },
      [&] { return new GegluBackward(x); });
}

at::Tensor quick_gelu(const at::Tensor& x) {
  return record(
      wants_grad(x), [&] { return x * at::sigmoid(x * 1.702); },
      [&] { return new QuickGeluBackward(x); });
}

}  // namespace stagecraft
