#include "pipeline/exec/step_data.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <numeric>
#include <utility>

#include "models/network/build.h"
#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"

namespace stagecraft {

StepData::StepData(const ExecutionPlan& plan, SampleSource& samples)
    : plan_(plan),
      samples_(samples),
      alphas_(alphas_cumprod(plan.model.noise)),
      first_sample_(plan.micro_batch_sizes.size()) {
  std::exclusive_scan(plan.micro_batch_sizes.begin(), plan.micro_batch_sizes.end(),
                      first_sample_.begin(), size_t{0});
}

void StepData::begin(std::span<const Draw> draws, OnData on_data) {
  check(static_cast<int64_t>(draws.size()) == std::accumulate(plan_.micro_batch_sizes.begin(),
                                                              plan_.micro_batch_sizes.end(),
                                                              int64_t{0}),
        "the batch has another size than the plan's micro-batches together");
  draws_ = draws;
  on_data_ = std::move(on_data);
}

at::Tensor StepData::local_input(int value, int micro_batch) {
  const std::string& name = plan_.graph.values[static_cast<size_t>(value)].name;
  const auto of = draws_of(micro_batch);
  const auto shown = [&](std::string_view what, at::Tensor tensor) {
    show(what, micro_batch, tensor);
    return tensor;
  };
  if (name == kInputContext) return shown("context", samples_.context(of));
  if (name == kInputHint) return shown("hint", samples_.hint(of));
  const at::Tensor timesteps =
      shown("timesteps", draw_timesteps(plan_.seed, of, plan_.model.noise.timesteps));
  if (name == kInputTimesteps) return timesteps;
  if (name == kInputNoisyLatents) {
    const at::Tensor latents = shown("latents", samples_.latents(of));
    return add_noise(latents, shown("noise", noise_of(value, micro_batch)), timesteps, alphas_);
  }
  throw InternalError(fmt::format("nobody makes the local input {}", name));
}

StepData::Loss StepData::loss(const at::Tensor& prediction_nchw, int micro_batch,
                              bool with_gradient) const {
  at::NoGradGuard no_grad;
  const at::Tensor target_nchw = noise_of(plan_.graph.output, micro_batch);
  const at::Tensor error_nchw = prediction_nchw - target_nchw;
  const at::Tensor losses = error_nchw.square().mean(at::IntArrayRef{1, 2, 3});
  show("prediction", micro_batch, prediction_nchw);
  show("target", micro_batch, target_nchw);
  show("losses", micro_batch, losses);
  if (!with_gradient) return {.of_samples = losses, .gradient = {}};
  const size_t samples = made(Mistake::kMeanOfMeans)
                             ? plan_.micro_batch_sizes.size() * draws_of(micro_batch).size()
                             : draws_.size();
  const double scale =
      2.0 / (static_cast<double>(error_nchw[0].numel()) * static_cast<double>(samples));
  return {.of_samples = losses, .gradient = (error_nchw * scale).to(prediction_nchw.scalar_type())};
}

std::span<const Draw> StepData::draws_of(int micro_batch) const {
  const auto j = static_cast<size_t>(micro_batch);
  return draws_.subspan(first_sample_[j], static_cast<size_t>(plan_.micro_batch_sizes[j]));
}

at::Tensor StepData::noise_of(int value, int micro_batch) const {
  return draw_noise(plan_.seed, draws_of(micro_batch),
                    plan_.graph.values[static_cast<size_t>(value)].shape);
}

void StepData::show(std::string_view what, int micro_batch, const at::Tensor& tensor) const {
  if (on_data_) on_data_(what, micro_batch, tensor);
}

}  // namespace stagecraft
