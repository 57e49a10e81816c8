#include "pipeline/data/cache.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <map>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_json.h"
#include "pipeline/data/cache_layout.h"
#include "pipeline/data/cache_store.h"
#include "pipeline/data/images.h"
#include "pipeline/data/picture_check.h"
#include "pipeline/dataset/manifest.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

using Phase = CacheProgress::Phase;

// One thing to encode, and the first sample that needs it.
struct Job {
  std::string key;
  size_t sample = 0;
  std::vector<int64_t> ids;  // of captions
};

// Raise the number when the same input gives other tensors, so that old files are not taken for new
// ones.
std::string latents_key(const std::string& identity, const CacheOptions& options,
                        const std::string& picture_hash) {
  return sha256_hex(
      fmt::format("latents 1 {} {}x{} {}", identity, options.width, options.height, picture_hash));
}

std::string caption_key(const std::string& identity, const std::vector<int64_t>& ids) {
  return sha256_hex(fmt::format("caption 1 {} {}", identity, fmt::join(ids, " ")));
}

class Filler {
 public:
  Filler(const Dataset& dataset, Encoder& encoder, const CacheOptions& options,
         const CacheProgressFn& progress)
      : dataset_(dataset),
        encoder_(encoder),
        options_(options),
        progress_(progress),
        latents_(options.folder, kLatentsFolder),
        captions_(options.folder, kCaptionsFolder),
        latent_tensors_(latent_tensors(encoder.latent_shape())),
        caption_tensors_(caption_tensors(encoder.embedding_shape())) {}

  CacheSummary run() {
    const CacheLock lock(options_.folder, [this] { report({.phase = Phase::kWaiting}); });
    const std::string image_identity = encoder_.image_identity();
    const std::string text_identity = encoder_.text_identity();
    summary_.manifest = manifest_path(image_identity + text_identity);
    const std::optional<CacheManifest> earlier = earlier_manifest();
    check_everything(earlier, text_identity);
    plan_images(image_identity);
    announce();
    encode_images();
    encode_captions();
    if (earlier != manifest_) {
      fs::create_directories(fs::path(summary_.manifest).parent_path());
      write_manifest(summary_.manifest, manifest_);
    }
    return summary_;
  }

 private:
  void report(const CacheProgress& progress) const {
    if (progress_) progress_(progress);
  }

  // One for each data set, resolution and pair of networks.
  std::string manifest_path(const std::string& identities) const {
    const std::string settings = fmt::format("manifest 1 {} {} {}x{}", dataset_.folder, identities,
                                             options_.width, options_.height);
    return (fs::path(options_.folder) / kManifestsFolder / (sha256_hex(settings) + ".json"))
        .string();
  }

  std::optional<CacheManifest> earlier_manifest() const {
    try {
      return read_manifest(summary_.manifest, dataset_);
    } catch (const InputError&) {
      return std::nullopt;  // none, or damaged: everything is looked at again
    }
  }

  void check_everything(const std::optional<CacheManifest>& earlier,
                        const std::string& text_identity) {
    manifest_.index_hash = dataset_.index_hash;
    manifest_.width = options_.width;
    manifest_.height = options_.height;
    DataFaults faults = dataset_.faults;
    plan_captions(text_identity, faults);
    manifest_.pictures = check_pictures(
        {.dataset = dataset_,
         .known = earlier ? earlier->pictures : std::map<std::string, PictureFacts>(),
         .width = options_.width,
         .height = options_.height,
         .progress =
             [this](int64_t done, int64_t total) {
               report({.phase = Phase::kChecking, .done = done, .total = total});
             }},
        faults);
    faults.throw_if_any();
    require_valid(dataset_, options_.batch);
  }

  void plan_captions(const std::string& identity, DataFaults& faults) {
    std::map<std::string, int64_t> places;  // by key
    const auto place_of = [&](std::string_view caption, size_t sample) {
      std::vector<int64_t> ids = encoder_.tokenize(caption);
      const std::string key = caption_key(identity, ids);
      const auto [place, is_new] =
          places.emplace(key, static_cast<int64_t>(manifest_.captions.size()));
      if (is_new) {
        manifest_.captions.push_back(key);
        if (!captions_.holds(key, caption_tensors_)) {
          caption_jobs_.push_back({.key = key, .sample = sample, .ids = std::move(ids)});
        }
      }
      return place->second;
    };
    place_of("", 0);
    for (size_t i = 0; i < dataset_.samples.size(); ++i) {
      try {
        manifest_.caption_of.push_back(place_of(dataset_.samples[i].caption, i));
      } catch (const InputError& error) {
        faults.add(dataset_.samples[i].line, fmt::format("\"prompt\": {}", error.what()));
      }
    }
    summary_.captions = static_cast<int64_t>(manifest_.captions.size());
  }

  void plan_images(const std::string& identity) {
    std::map<std::string, size_t> first;  // sample by key
    for (size_t i = 0; i < dataset_.samples.size(); ++i) {
      const PictureFacts& facts = manifest_.pictures.at(dataset_.samples[i].target);
      const std::string key = latents_key(identity, options_, facts.hash);
      manifest_.latents.push_back(key);
      if (first.emplace(key, i).second && !latents_.holds(key, latent_tensors_)) {
        image_jobs_.push_back({.key = key, .sample = i, .ids = {}});
      }
    }
    summary_.images = static_cast<int64_t>(first.size());
  }

  void announce() {
    const auto images = static_cast<int64_t>(image_jobs_.size());
    const auto captions = static_cast<int64_t>(caption_jobs_.size());
    summary_.written = CacheStore::disk_bytes(latent_tensors_) * images +
                       CacheStore::disk_bytes(caption_tensors_) * captions;
    report(
        {.phase = Phase::kNeed, .done = 0, .total = images + captions, .bytes = summary_.written});
    require_space(options_.folder, summary_.written, "name another folder with --cache");
  }

  void encode_images() {
    for (const Job& job : image_jobs_) {
      const SampleFiles& sample = dataset_.samples[job.sample];
      const auto [mean, deviation] = posterior(image_of(sample));
      require_finite(mean, sample);
      require_finite(deviation, sample);
      latents_.write(job.key, {{{"mean", mean}, {"std", deviation}}});
      ++summary_.encoded_images;
      report({.phase = Phase::kImages,
              .done = summary_.encoded_images,
              .total = static_cast<int64_t>(image_jobs_.size())});
    }
    encoder_.release();
  }

  void encode_captions() {
    for (const Job& job : caption_jobs_) {
      const at::Tensor embedding = encoder_.encode_text(job.ids)[0].contiguous();
      require_finite(embedding, dataset_.samples[job.sample]);
      captions_.write(job.key, {{{"embedding", embedding}}});
      ++summary_.encoded_captions;
      report({.phase = Phase::kCaptions,
              .done = summary_.encoded_captions,
              .total = static_cast<int64_t>(caption_jobs_.size())});
    }
    encoder_.release();
  }

  at::Tensor image_of(const SampleFiles& sample) const {
    const auto refuse = [&](const std::string& why) {
      DataFaults fault(dataset_.index_path);
      fault.add(sample.line, fmt::format("target \"{}\": {}", printable(sample.target), why));
      fault.throw_if_any();
    };
    LoadedPicture loaded;
    try {
      loaded = load_picture(dataset_, sample.target);
    } catch (const InputError& error) {
      refuse(error.what());
    }
    if (loaded.facts.hash != manifest_.pictures.at(sample.target).hash) {
      refuse("was changed while the cache was filled");
    }
    return target_tensor(fit_picture(loaded.picture, options_.width, options_.height)).unsqueeze(0);
  }

  // Mean and deviation [channels, H/8, W/8]; the log-variance is clamped as in ldm's and diffusers'
  // DiagonalGaussianDistribution.
  std::pair<at::Tensor, at::Tensor> posterior(const at::Tensor& image_nchw) {
    const at::Tensor moments = encoder_.encode_image(image_nchw)[0];
    const int64_t channels = moments.size(0) / 2;
    return {moments.narrow(0, 0, channels).contiguous(),
            moments.narrow(0, channels, channels).clamp(-30.0, 20.0).mul(0.5).exp().contiguous()};
  }

  void require_finite(const at::Tensor& tensor, const SampleFiles& sample) const {
    if (at::isfinite(tensor).all().item<bool>()) return;
    throw InputError(
        ExitCode::kDataInvalid,
        fmt::format(
            "{}:{}: the encoder gives values that are not finite; are these the right weights?",
            dataset_.index_path, sample.line));
  }

  const Dataset& dataset_;
  Encoder& encoder_;
  const CacheOptions& options_;
  const CacheProgressFn& progress_;
  CacheStore latents_, captions_;
  std::vector<NamedShape> latent_tensors_, caption_tensors_;
  std::vector<Job> image_jobs_, caption_jobs_;
  CacheManifest manifest_;
  CacheSummary summary_;
};

}  // namespace

std::string default_cache_folder(const Dataset& dataset) {
  return (fs::path(dataset.folder) / ".stagecraft_cache").string();
}

CacheSummary fill_cache(const Dataset& dataset, Encoder& encoder, const CacheOptions& options,
                        const CacheProgressFn& progress) {
  return Filler(dataset, encoder, options, progress).run();
}

}  // namespace stagecraft
