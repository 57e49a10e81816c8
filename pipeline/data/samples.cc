#include "pipeline/data/samples.h"

#include <ATen/ATen.h>

#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/mistakes.h"
#include "partitioner/base/random.h"
#include "pipeline/data/cache_layout.h"

namespace stagecraft {
namespace {

at::Tensor empty_batch(std::span<const Draw> draws, std::span<const int64_t> shape) {
  std::vector<int64_t> sizes = {static_cast<int64_t>(draws.size())};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  return at::empty(sizes, at::kFloat);
}

// Row i of a batch as plain memory.
std::span<float> row(at::Tensor& batch, size_t i) {
  const size_t elements = static_cast<size_t>(batch.numel() / batch.size(0));
  return {batch.data_ptr<float>() + i * elements, elements};
}

RandomKey key_of(uint64_t seed, const Draw& draw, std::string_view purpose) {
  return {.seed = seed,
          .index = static_cast<uint64_t>(draw.epoch),
          .sample = static_cast<uint64_t>(draw.sample),
          .purpose = purpose};
}

// A key is derived once an epoch: deriving one for each of a million samples would take seconds.
std::array<uint32_t, 2> order_key(uint64_t seed, int64_t epoch) {
  std::array<uint32_t, 2> words = {};
  for (int64_t i = 0; i < 2; ++i) {
    const RandomKey key = key_of(seed, {.epoch = epoch, .sample = i}, "order");
    words[static_cast<size_t>(i)] = static_cast<uint32_t>(uniform_int(key, uint64_t{1} << 32));
  }
  return words;
}

// Uniform in [0, n) from 64 random bits (Lemire 2019); the bias, n / 2^64, cannot be seen.
size_t below(uint64_t n, uint64_t counter, std::array<uint32_t, 2> key) {
  const std::array<uint32_t, 4> words =
      philox({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0}, key);
  const uint64_t random = uint64_t{words[1]} << 32 | words[0];
  __extension__ using Wide = unsigned __int128;
  return static_cast<size_t>(static_cast<Wide>(random) * n >> 64);
}

}  // namespace

std::vector<int64_t> order_of_epoch(uint64_t seed, int64_t size, int64_t epoch) {
  check(size > 0 && epoch >= 0, "order_of_epoch: no samples, or a negative epoch");
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), int64_t{0});
  const std::array<uint32_t, 2> key = order_key(seed, epoch);
  for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[below(i + 1, i, key)]);
  return order;
}

SampleOrder::SampleOrder(uint64_t seed, int64_t size) : seed_(seed), size_(size) {
  check(size > 0, "SampleOrder: no samples");
}

std::vector<Draw> SampleOrder::batch_of_step(int64_t batch, int64_t step) {
  check(batch > 0 && step >= 0, "batch_of_step: an empty batch or a negative step");
  std::vector<Draw> draws;
  draws.reserve(static_cast<size_t>(batch));
  for (int64_t position = step * batch; position < (step + 1) * batch; ++position) {
    const int64_t epoch = position / size_;
    if (epoch != epoch_) {
      order_ = order_of_epoch(seed_, size_, epoch);
      epoch_ = epoch;
    }
    draws.push_back({.epoch = epoch, .sample = order_[static_cast<size_t>(position % size_)]});
  }
  return draws;
}

at::Tensor draw_normal(uint64_t seed, std::span<const Draw> draws, std::span<const int64_t> shape,
                       std::string_view purpose) {
  at::Tensor batch = empty_batch(draws, shape);
  for (size_t i = 0; i < draws.size(); ++i) {
    fill_normal(key_of(seed, draws[i], purpose), row(batch, i));
  }
  return batch;
}

at::Tensor draw_noise(uint64_t seed, std::span<const Draw> draws, std::span<const int64_t> shape) {
  at::Tensor noise = draw_normal(seed, draws, shape, "noise");
  if (made(Mistake::kSharedNoise)) noise.copy_(noise.narrow(0, 0, 1).expand_as(noise));
  return noise;
}

at::Tensor draw_timesteps(uint64_t seed, std::span<const Draw> draws, int64_t timesteps) {
  check(timesteps > 0, "draw_timesteps: no timesteps");
  at::Tensor batch = at::empty({static_cast<int64_t>(draws.size())}, at::kLong);
  for (size_t i = 0; i < draws.size(); ++i) {
    batch.data_ptr<int64_t>()[i] = static_cast<int64_t>(
        uniform_int(key_of(seed, draws[i], "timestep"), static_cast<uint64_t>(timesteps)));
  }
  return batch;
}

at::Tensor add_noise(const at::Tensor& latents, const at::Tensor& noise,
                     const at::Tensor& timesteps, const std::vector<double>& alphas_cumprod) {
  check(latents.dim() == 4 && latents.sizes() == noise.sizes() && timesteps.dim() == 1 &&
            timesteps.size(0) == latents.size(0) && timesteps.scalar_type() == at::kLong,
        "add_noise: latents [n,4,h,w], noise alike, timesteps [n] int64 expected");
  const at::Tensor steps = timesteps.contiguous();
  at::Tensor signal_scale = at::empty({latents.size(0), 1, 1, 1}, at::kFloat);
  at::Tensor noise_scale = at::empty_like(signal_scale);
  for (int64_t i = 0; i < latents.size(0); ++i) {
    const int64_t t = steps.data_ptr<int64_t>()[i];
    check(t >= 0 && t < static_cast<int64_t>(alphas_cumprod.size()),
          "add_noise: a timestep beyond the noise schedule");
    const double alpha_bar = alphas_cumprod[static_cast<size_t>(t)];
    signal_scale.data_ptr<float>()[i] = static_cast<float>(std::sqrt(alpha_bar));
    noise_scale.data_ptr<float>()[i] = static_cast<float>(std::sqrt(1.0 - alpha_bar));
  }
  return latents * signal_scale + noise * noise_scale;
}

RandomSamples::RandomSamples(const ModelConfig& model, int64_t width, int64_t height, int64_t size,
                             uint64_t seed)
    : model_(model), width_(width), height_(height), size_(size), seed_(seed) {
  check(size > 0 && width > 0 && height > 0 && width % kPixelsPerLatent == 0 &&
            height % kPixelsPerLatent == 0,
        "RandomSamples: at least one sample, width and height multiples of 8");
}

at::Tensor RandomSamples::latents(std::span<const Draw> draws) {
  const int64_t shape[] = {model_.vae.latent_channels, height_ / kPixelsPerLatent,
                           width_ / kPixelsPerLatent};
  return draw_normal(seed_, draws, shape, "latent");
}

// A caption or a hint does not change from epoch to epoch, so its key has none.
at::Tensor RandomSamples::context(std::span<const Draw> draws) {
  const int64_t shape[] = {model_.text_encoder.max_length, model_.unet.cross_attention_dim};
  at::Tensor batch = empty_batch(draws, shape);
  for (size_t i = 0; i < draws.size(); ++i) {
    fill_normal(key_of(seed_, {.sample = draws[i].sample}, "random context"), row(batch, i));
  }
  return batch;
}

at::Tensor RandomSamples::hint(std::span<const Draw> draws) {
  const int64_t shape[] = {model_.controlnet.conditioning_channels, height_, width_};
  at::Tensor batch = empty_batch(draws, shape);
  for (size_t i = 0; i < draws.size(); ++i) {
    fill_uniform(key_of(seed_, {.sample = draws[i].sample}, "random hint"), row(batch, i));
  }
  return batch;
}

}  // namespace stagecraft
