// What the pipeline trains on, as tensors that every rank can make for itself: nothing is relayed
// between ranks.
//
// Everything random is a pure function of (seed, epoch, sample, purpose): the same for any number
// of stages, ranks, micro-batches or a resume. A source is used by one thread at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "models/config/model_config.h"

namespace stagecraft {

// One sample as it is seen in one epoch; each occurs once in a run.
struct Draw {
  int64_t epoch = 0;
  int64_t sample = 0;
  bool operator==(const Draw&) const = default;
};

// The permutation of all samples in one epoch (purpose "order"; Fisher and Yates, Durstenfeld
// 1964). O(size).
std::vector<int64_t> order_of_epoch(uint64_t seed, int64_t size, int64_t epoch);

// An endless stream of samples, every epoch a permutation of all of them. Keeps the order of the
// epoch under way: steps in a row cost O(size) once an epoch, others once each.
class SampleOrder {
 public:
  SampleOrder(uint64_t seed, int64_t size);
  // `batch` consecutive entries of the stream. Blocks never.
  std::vector<Draw> batch_of_step(int64_t batch, int64_t step);

 private:
  uint64_t seed_;
  int64_t size_, epoch_ = -1;
  std::vector<int64_t> order_;  // of `epoch_`
};

class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual int64_t size() const = 0;
  // [n, 4, H/8, W/8] fp32: drawn from the VAE posterior (mean + std * normal), times the scaling
  // factor.
  virtual at::Tensor latents(std::span<const Draw> draws) = 0;
  // [n, 77, context] fp32: text embeddings, the empty caption's where it was dropped.
  virtual at::Tensor context(std::span<const Draw> draws) = 0;
  // [n, 3, H, W] fp32 in [0, 1].
  virtual at::Tensor hint(std::span<const Draw> draws) = 0;
};

// [n, ...shape] fp32 standard normal for a purpose.
at::Tensor draw_normal(uint64_t seed, std::span<const Draw> draws, std::span<const int64_t> shape,
                       std::string_view purpose);
// [n, ...shape] fp32 standard normal, purpose "noise"; [n] int64 uniform in [0, timesteps), purpose
// "timestep".
at::Tensor draw_noise(uint64_t seed, std::span<const Draw> draws, std::span<const int64_t> shape);
at::Tensor draw_timesteps(uint64_t seed, std::span<const Draw> draws, int64_t timesteps);
// sqrt(alpha_bar_t) x + sqrt(1 - alpha_bar_t) noise (Ho et al. 2020, eq. 4), coefficients float64
// rounded to fp32.
at::Tensor add_noise(const at::Tensor& latents, const at::Tensor& noise,
                     const at::Tensor& timesteps, const std::vector<double>& alphas_cumprod);

// Seeded samples without files, for profiling, tests and rehearsals: normal latents and embeddings,
// uniform hints.
class RandomSamples : public SampleSource {
 public:
  RandomSamples(const ModelConfig& model, int64_t width, int64_t height, int64_t size,
                uint64_t seed);
  int64_t size() const override { return size_; }
  at::Tensor latents(std::span<const Draw> draws) override;
  at::Tensor context(std::span<const Draw> draws) override;
  at::Tensor hint(std::span<const Draw> draws) override;

 private:
  ModelConfig model_;
  int64_t width_, height_, size_;
  uint64_t seed_;
};

}  // namespace stagecraft
