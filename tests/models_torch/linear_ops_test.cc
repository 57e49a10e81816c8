// The autograd functions against stock LibTorch: the same bits where both use the same kernels,
// only what is asked for, and nothing saved that backward does not read.
#include "models/torch/linear_ops.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "partitioner/base/error.h"
#include "tests/support/scoped_mistake.h"

namespace stagecraft {
namespace {

using torch::autograd::grad;
using Tensors = std::vector<at::Tensor>;

at::Tensor leaf(at::IntArrayRef shape, bool requires_grad = true,
                at::ScalarType dtype = at::kFloat) {
  return at::randn(shape, at::TensorOptions(dtype)).set_requires_grad(requires_grad);
}

// Gives up the caller's handle and says whether something else still holds the tensor.
bool kept_alive(at::Tensor& t) {
  const c10::weak_intrusive_ptr<at::TensorImpl> watch(t.getIntrusivePtr());
  t.reset();
  return !watch.expired();
}

// A layer in the two implementations, with operands to feed it.
struct Layer {
  const char* name;
  std::vector<int64_t> x, weight, bias;
  std::function<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&)> ours, stock;
};

Layer conv(const char* name, std::vector<int64_t> x, std::vector<int64_t> weight, int64_t stride,
           int64_t padding) {
  return {
      .name = name,
      .x = x,
      .weight = weight,
      .bias = {weight[0]},
      .ours = [=](auto& in, auto& w, auto& b) { return conv2d(in, w, b, stride, padding); },
      .stock = [=](auto& in, auto& w, auto& b) { return at::conv2d(in, w, b, stride, padding); }};
}

std::vector<Layer> layers() {
  const auto ours = [](auto& x, auto& w, auto& b) { return linear(x, w, b); };
  const auto stock = [](auto& x, auto& w, auto& b) { return at::linear(x, w, b); };
  return {conv("3x3", {2, 64, 16, 24}, {32, 64, 3, 3}, 1, 1),
          conv("3x3 stride 2", {1, 16, 16, 24}, {48, 16, 3, 3}, 2, 1),
          conv("3x3 stride 2 unpadded", {2, 16, 17, 25}, {16, 16, 3, 3}, 2, 0),
          conv("1x1", {1, 64, 4, 6}, {64, 64, 1, 1}, 1, 0),
          conv("few channels, one sample", {1, 3, 8, 8}, {4, 3, 3, 3}, 1, 1),
          {"linear rows", {2, 64}, {96, 64}, {96}, ours, stock},
          {"linear sequence", {2, 24, 64}, {96, 64}, {96}, ours, stock},
          {"linear without bias", {2, 24, 64}, {96, 64}, {}, ours, stock}};
}

struct Operands {
  at::Tensor x, weight, bias;  // bias undefined when the layer has none
  Tensors leaves() const { return bias.defined() ? Tensors{x, weight, bias} : Tensors{x, weight}; }
};

Operands operands(const Layer& layer, bool x, bool parameters, at::ScalarType dtype = at::kFloat) {
  at::manual_seed(1);
  return {leaf(layer.x, x, dtype), leaf(layer.weight, parameters, dtype),
          layer.bias.empty() ? at::Tensor() : leaf(layer.bias, parameters, dtype)};
}

TEST(LinearOps, ForwardAndGradientsHaveStockBits) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    for (const Layer& layer : layers()) {
      SCOPED_TRACE(layer.name);
      const Operands o = operands(layer, true, true, dtype);
      const at::Tensor ours = layer.ours(o.x, o.weight, o.bias);
      const at::Tensor stock = layer.stock(o.x, o.weight, o.bias);
      EXPECT_TRUE(at::equal(ours, stock));
      const at::Tensor g = at::randn_like(ours);
      const Tensors a = grad({ours}, o.leaves(), {g}), b = grad({stock}, o.leaves(), {g});
      for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << "gradient " << i;
    }
  }
}

TEST(LinearOps, GradientsAskedForSeparatelyHaveTheBitsOfOneCall) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.name);
    const Operands o = operands(layer, true, true);
    const at::Tensor y = layer.ours(o.x, o.weight, o.bias);
    const at::Tensor g = at::randn_like(y);
    const Tensors together = grad({y}, o.leaves(), {g}, /*retain_graph=*/true);
    const Tensors leaves = o.leaves();
    for (size_t i = 0; i < leaves.size(); ++i) {
      const Tensors alone = grad({y}, {leaves[i]}, {g}, /*retain_graph=*/true);
      EXPECT_TRUE(at::equal(alone[0], together[i])) << "gradient " << i;
    }
  }
}

class EveryDtype : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(EveryDtype, FrozenOperandsChangeNoBits) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.name);
    const Operands all = operands(layer, true, true, GetParam());
    const Operands only_x = operands(layer, true, false, GetParam());
    const Operands only_parameters = operands(layer, false, true, GetParam());
    const at::Tensor g = at::randn_like(layer.ours(all.x, all.weight, all.bias));
    const auto gradients = [&](const Operands& o, const Tensors& wanted) {
      return grad({layer.ours(o.x, o.weight, o.bias)}, wanted, {g});
    };
    const Tensors full = gradients(all, all.leaves());
    EXPECT_TRUE(at::equal(gradients(only_x, {only_x.x})[0], full[0]));
    EXPECT_TRUE(at::equal(gradients(only_parameters, {only_parameters.weight})[0], full[1]));
  }
}

// Operands that autograd does not itself hold, as a graph's leaves are held by their accumulators.
Operands inner_operands(const Layer& layer, bool x, bool parameters) {
  const Operands o = operands(layer, x, parameters);
  return {o.x * 2.0, o.weight * 2.0, o.bias.defined() ? o.bias * 2.0 : at::Tensor()};
}

INSTANTIATE_TEST_SUITE_P(LinearOps, EveryDtype,
                         ::testing::Values(at::kFloat, at::kDouble, at::kHalf, at::kBFloat16),
                         [](const auto& info) { return std::string(at::toString(info.param)); });

TEST(LinearOps, FrozenWeightMeansInputIsNotSaved) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.name);
    Operands o = inner_operands(layer, true, false);
    const at::Tensor y = layer.ours(o.x, o.weight, o.bias);
    EXPECT_FALSE(kept_alive(o.x));
    EXPECT_TRUE(kept_alive(o.weight));
  }
}

TEST(LinearOps, InputWithoutGradientMeansWeightIsNotSaved) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.name);
    Operands o = inner_operands(layer, false, true);
    const at::Tensor y = layer.ours(o.x, o.weight, o.bias);
    EXPECT_TRUE(kept_alive(o.x));
    EXPECT_FALSE(kept_alive(o.weight));
  }
}

TEST(LinearOps, SavedTensorsAreReleasedByBackward) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.name);
    const Operands leaves = operands(layer, true, true);
    Operands o = {leaves.x * 2.0, leaves.weight * 2.0, at::Tensor()};
    const at::Tensor y = layer.ours(o.x, o.weight, o.bias);
    grad({y.sum()}, {leaves.x, leaves.weight});
    EXPECT_FALSE(kept_alive(o.x));
    EXPECT_FALSE(kept_alive(o.weight));
    EXPECT_THROW(grad({y.sum()}, {leaves.x}), InternalError);
  }
}

TEST(LinearOps, NothingIsRecordedWithoutGradMode) {
  const at::NoGradGuard no_grad;
  for (const Layer& layer : layers()) {
    const Operands o = operands(layer, true, true);
    const at::Tensor y = layer.ours(o.x, o.weight, o.bias);
    EXPECT_FALSE(y.requires_grad()) << layer.name;
    Operands inner = inner_operands(layer, true, true);
    const at::Tensor z = layer.ours(inner.x, inner.weight, inner.bias);
    EXPECT_FALSE(kept_alive(inner.x) || kept_alive(inner.weight)) << layer.name;
  }
}

TEST(LinearOps, FrozenLayerRecordsNothing) {
  for (const Layer& layer : layers()) {
    const Operands o = operands(layer, false, false);
    EXPECT_FALSE(layer.ours(o.x, o.weight, o.bias).requires_grad()) << layer.name;
  }
}

at::Tensor stock_geglu(const at::Tensor& x) {
  const std::vector<at::Tensor> halves = x.chunk(2, -1);
  return halves[0] * at::gelu(halves[1], "none");
}

TEST(Activations, GegluHasStockBits) {
  const at::Tensor x = leaf({2, 24, 96});
  const at::Tensor ours = geglu(x), stock = stock_geglu(x), g = at::randn_like(ours);
  EXPECT_TRUE(at::equal(ours, stock));
  EXPECT_TRUE(at::equal(grad({ours}, {x}, {g})[0], grad({stock}, {x}, {g})[0]));
}

TEST(Activations, QuickGeluHasStockGradient) {
  const at::Tensor x = leaf({2, 24, 96}, true, at::kDouble);
  const at::Tensor ours = quick_gelu(x), stock = x * at::sigmoid(1.702 * x);
  const at::Tensor g = at::randn_like(ours);
  EXPECT_TRUE(at::equal(ours, stock));
  EXPECT_TRUE(at::allclose(grad({ours}, {x}, {g})[0], grad({stock}, {x}, {g})[0], 1e-14, 1e-14));
}

TEST(Activations, MistakenGeluDiffers) {
  const at::Tensor x = leaf({2, 24, 96}, false);
  const at::Tensor right = geglu(x);
  const ScopedMistake mistake(Mistake::kTanhGelu);
  EXPECT_FALSE(at::allclose(geglu(x), right, 1e-5, 1e-5));
}

}  // namespace
}  // namespace stagecraft
