#include "pipeline/exec/optimizer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {
namespace {

// Fixed blocking: the bits depend on the parameter's values only, never on vector width or threads.
double sum_of_squares(const at::Tensor& tensor) {
  constexpr int64_t kLanes = 8;
  const float* data = tensor.const_data_ptr<float>();
  const int64_t count = tensor.numel();
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(data[i + lane]) * static_cast<double>(data[i + lane]);
    }
  }
  for (; i < count; ++i) lanes[0] += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

struct SquareOfParameter {
  int64_t canonical;
  double square;
};

}  // namespace

double learning_rate_at(const OptimizerConfig& config, int64_t step) {
  if (step >= config.warmup_steps) return config.learning_rate;
  return config.learning_rate * static_cast<double>(step) /
         static_cast<double>(config.warmup_steps);
}

double global_gradient_norm(const RankParameters& parameters, ControlChannel& control,
                            int64_t step) {
  std::vector<SquareOfParameter> squares;
  for (const ParameterSlot& slot : parameters.slots()) {
    if (slot.has_gradient) squares.push_back({slot.canonical, sum_of_squares(slot.gradient)});
  }
  const std::string payload(reinterpret_cast<const char*>(squares.data()),
                            squares.size() * sizeof(SquareOfParameter));
  squares.clear();
  auto parts = control.all_gather(fmt::format("gradient norm of step {}", step), payload);
  if (made(Mistake::kClipPerStage)) parts = {payload};
  for (const std::string& part : parts) {
    check(part.size() % sizeof(SquareOfParameter) == 0,
          "a rank's part of the norm has a wrong size");
    const size_t before = squares.size();
    squares.resize(before + part.size() / sizeof(SquareOfParameter));
    if (!part.empty()) std::memcpy(squares.data() + before, part.data(), part.size());
  }
  std::sort(squares.begin(), squares.end(),
            [](const auto& a, const auto& b) { return a.canonical < b.canonical; });
  double sum = 0;
  for (const SquareOfParameter& entry : squares) sum += entry.square;
  return std::sqrt(sum);
}

void optimizer_step(RankParameters& parameters, const OptimizerConfig& config, double norm,
                    int64_t step) {
  if (!std::isfinite(norm)) {
    throw Error(ExitCode::kNonFinite,
                fmt::format("step {}: the gradient norm is {}; no weight was changed. Lower the "
                            "learning rate (now {}) or set max_grad_norm",
                            step, norm, learning_rate_at(config, step)));
  }
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> weights, gradients, exp_avgs, exp_avg_sqs, steps;
  const double clip =
      config.max_grad_norm > 0 ? std::min(1.0, config.max_grad_norm / (norm + 1e-6)) : 1.0;
  for (ParameterSlot& slot : parameters.slots()) {
    if (!slot.has_gradient) continue;
    if (clip < 1.0) slot.gradient.mul_(clip);
    slot.steps.add_(1);
    weights.push_back(slot.weight);
    gradients.push_back(slot.gradient);
    exp_avgs.push_back(slot.exp_avg);
    exp_avg_sqs.push_back(slot.exp_avg_sq);
    steps.push_back(slot.steps);
  }
  if (weights.empty()) return;
  at::_fused_adamw_(weights, gradients, exp_avgs, exp_avg_sqs, /*max_exp_avg_sqs=*/{}, steps,
                    learning_rate_at(config, step), config.beta1, config.beta2, config.weight_decay,
                    config.eps, /*amsgrad=*/false, /*maximize=*/false);
}

}  // namespace stagecraft
