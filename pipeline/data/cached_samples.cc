#include "pipeline/data/cached_samples.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/base/random.h"
#include "partitioner/base/strict_json.h"
#include "pipeline/data/cache_layout.h"
#include "pipeline/data/images.h"
#include "pipeline/data/picture_check.h"

namespace stagecraft {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw InputError(ExitCode::kDataInvalid, message);
}

std::string cache_folder_of(const std::string& manifest) {
  return std::filesystem::path(manifest).parent_path().parent_path().string();
}

std::span<float> values_of(at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

}  // namespace

CachedSamples::CachedSamples(Dataset dataset, const ModelConfig& model,
                             const CachedSamplesOptions& options)
    : dataset_(std::move(dataset)),
      model_(model),
      options_(options),
      manifest_(read_manifest(options.manifest, dataset_)),
      latents_(cache_folder_of(options.manifest), kLatentsFolder),
      captions_(cache_folder_of(options.manifest), kCaptionsFolder) {
  require_valid(dataset_, 1);
  if (manifest_.index_hash != dataset_.index_hash ||
      manifest_.latents.size() != dataset_.samples.size()) {
    refuse(fmt::format("{}: changed since the cache was filled; start again to fill it",
                       dataset_.index_path));
  }
  if (manifest_.width != options.width || manifest_.height != options.height) {
    refuse(fmt::format("{}: filled for {} x {} pixels, not for {} x {}", options.manifest,
                       manifest_.width, manifest_.height, options.width, options.height));
  }
}

const SampleFiles& CachedSamples::sample(const Draw& draw) const {
  check(draw.sample >= 0 && draw.sample < size(), "CachedSamples: no such sample");
  return dataset_.samples[static_cast<size_t>(draw.sample)];
}

at::Tensor CachedSamples::latents(std::span<const Draw> draws) {
  const int64_t shape[] = {model_.vae.latent_channels, options_.height / kPixelsPerLatent,
                           options_.width / kPixelsPerLatent};
  const at::Tensor noise = draw_normal(options_.seed, draws, shape, "latent");
  at::Tensor mean = at::empty_like(noise), deviation = at::empty_like(noise);
  for (size_t i = 0; i < draws.size(); ++i) {
    sample(draws[i]);
    const std::string& key = manifest_.latents[static_cast<size_t>(draws[i].sample)];
    at::Tensor mean_chw = mean[static_cast<int64_t>(i)];
    at::Tensor deviation_chw = deviation[static_cast<int64_t>(i)];
    latents_.read(key, "mean", values_of(mean_chw));
    latents_.read(key, "std", values_of(deviation_chw));
  }
  return deviation.mul_(noise).add_(mean).mul_(model_.vae.scaling_factor);
}

at::Tensor CachedSamples::context(std::span<const Draw> draws) {
  at::Tensor batch = at::empty({static_cast<int64_t>(draws.size()), model_.text_encoder.max_length,
                                model_.unet.cross_attention_dim},
                               at::kFloat);
  for (size_t i = 0; i < draws.size(); ++i) {
    sample(draws[i]);
    const bool dropped = uniform({.seed = options_.seed,
                                  .index = static_cast<uint64_t>(draws[i].epoch),
                                  .sample = static_cast<uint64_t>(draws[i].sample),
                                  .purpose = "caption"}) < options_.caption_dropout;
    const int64_t place = dropped ? 0 : manifest_.caption_of[static_cast<size_t>(draws[i].sample)];
    at::Tensor embedding = batch[static_cast<int64_t>(i)];
    captions_.read(manifest_.captions[static_cast<size_t>(place)], "embedding",
                   values_of(embedding));
  }
  return batch;
}

at::Tensor CachedSamples::hint(std::span<const Draw> draws) {
  std::vector<at::Tensor> hints;
  for (const Draw& draw : draws) {
    const SampleFiles& files = sample(draw);
    const auto refuse_file = [&](const std::string& why) {
      refuse(fmt::format("{}:{}: source \"{}\": {}", dataset_.index_path, files.line,
                         printable(files.source), why));
    };
    try {
      const LoadedPicture loaded = load_picture(dataset_, files.source);
      const auto known = manifest_.pictures.find(files.source);
      if (known == manifest_.pictures.end() || known->second.hash != loaded.facts.hash) {
        refuse("changed since the cache was filled");
      }
      hints.push_back(hint_tensor(fit_picture(loaded.picture, options_.width, options_.height)));
    } catch (const InputError& error) {
      refuse_file(error.what());
    }
  }
  return at::stack(hints);
}

}  // namespace stagecraft
