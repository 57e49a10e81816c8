// The samples of a data set whose cache is filled. Reads what is asked for and keeps nothing: the
// page cache of the operating system does that, outside the memory a rank is planned for.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "pipeline/data/cache_store.h"
#include "pipeline/data/samples.h"
#include "pipeline/dataset/dataset.h"
#include "pipeline/dataset/manifest.h"

namespace stagecraft {

struct CachedSamplesOptions {
  std::string manifest;           // CacheSummary::manifest
  int64_t width = 0, height = 0;  // resolution, pixels
  uint64_t seed = 42;
  double caption_dropout = 0.0;  // probability of the empty caption
};

class CachedSamples : public SampleSource {
 public:
  // Throws InputError(kDataInvalid) when prompt.json is not the one the cache was filled for, or
  // has faults.
  CachedSamples(Dataset dataset, const ModelConfig& model, const CachedSamplesOptions& options);
  int64_t size() const override { return static_cast<int64_t>(dataset_.samples.size()); }
  // All three throw InputError(kDataInvalid) naming the file when it is gone, changed or damaged
  // meanwhile.
  at::Tensor latents(std::span<const Draw> draws) override;  // noise: purpose "latent"
  at::Tensor context(std::span<const Draw> draws) override;  // dropout: purpose "caption"
  at::Tensor hint(std::span<const Draw> draws) override;

 private:
  const SampleFiles& sample(const Draw& draw) const;

  Dataset dataset_;
  ModelConfig model_;
  CachedSamplesOptions options_;
  CacheManifest manifest_;
  CacheStore latents_, captions_;
};

}  // namespace stagecraft
