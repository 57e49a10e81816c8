// The two ends of the network in one step: what blocks take from outside, and the loss.
//
// Every rank draws what it needs from the same samples, so nothing of this is sent. Used by the
// executor's thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "pipeline/data/samples.h"
#include "pipeline/exec/execution_plan.h"

namespace stagecraft {

// Shows what the step is made from and ends in, at the moment of its use: "context", "hint",
// "timesteps", "latents", "noise" where a block takes such an input; "prediction", "target",
// "losses" on the rank of the last stage. [n, ...] of one micro-batch, contiguous; not to be
// changed or kept.
using OnData = std::function<void(std::string_view what, int micro_batch, const at::Tensor&)>;

class StepData {
 public:
  struct Loss {
    at::Tensor of_samples;  // [n]: mean squared error over C, H, W
    at::Tensor gradient;    // of the prediction, as the prediction; undefined unless asked for
  };

  // What they name outlives this.
  StepData(const ExecutionPlan& plan, SampleSource& samples);

  // `draws`: the global batch, alive until the step is over. `on_data` may be empty.
  void begin(std::span<const Draw> draws, OnData on_data);

  // A value that no block makes. InternalError for one that nobody knows.
  at::Tensor local_input(int value, int micro_batch);

  // `prediction_nchw` against the noise. The gradient is that of the mean over the samples of the
  // *global* batch: the only place where anything is scaled by a number of samples.
  Loss loss(const at::Tensor& prediction_nchw, int micro_batch, bool with_gradient) const;

  size_t samples_in_batch() const { return draws_.size(); }
  // Of a micro-batch: its place in the batch.
  size_t first_sample(int micro_batch) const {
    return first_sample_[static_cast<size_t>(micro_batch)];
  }

 private:
  std::span<const Draw> draws_of(int micro_batch) const;
  at::Tensor noise_of(int value, int micro_batch) const;
  void show(std::string_view what, int micro_batch, const at::Tensor& tensor) const;

  const ExecutionPlan plan_;
  SampleSource& samples_;
  const std::vector<double> alphas_;
  std::vector<size_t> first_sample_;  // by micro-batch
  std::span<const Draw> draws_;
  OnData on_data_;
};

}  // namespace stagecraft
