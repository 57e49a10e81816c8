// Fills the cache of a data set: checks every file, then encodes each picture and each caption
// once.
//
// VAE mean and deviation of every distinct target, text embedding of every distinct caption (the
// empty one always). Nothing is encoded before everything is checked. Runs on the calling thread,
// for minutes to hours the first time; a second run compares sizes and time stamps only. Call it in
// a process that ends before training starts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "partitioner/base/units.h"
#include "pipeline/data/encoder.h"
#include "pipeline/dataset/dataset.h"

namespace stagecraft {

struct CacheOptions {
  std::string folder;             // see default_cache_folder
  int64_t width = 0, height = 0;  // resolution, pixels
  int64_t batch = 1;              // a data set with fewer samples is refused
};

struct CacheProgress {
  enum class Phase {
    kWaiting,   // another process fills this cache
    kChecking,  // pictures
    kNeed,      // once, before anything is written: `bytes` of disk for `total` files
    kImages,    // encoding
    kCaptions,
  };
  Phase phase = Phase::kChecking;
  int64_t done = 0, total = 0;
  Bytes bytes = {};
};
// May throw to stop the fill; what is encoded stays and is not encoded again.
using CacheProgressFn = std::function<void(const CacheProgress&)>;

struct CacheSummary {
  std::string manifest;                              // path; what CachedSamples needs
  int64_t images = 0, captions = 0;                  // distinct
  int64_t encoded_images = 0, encoded_captions = 0;  // by this run
  Bytes written;                                     // by this run, in whole disk blocks
};

// DIR/.stagecraft_cache.
std::string default_cache_folder(const Dataset& dataset);

// Throws InputError(kDataInvalid) with every fault of the data set, `file:line: message` each, and
// leaves the cache as it was; InputError(kIo) when the folder cannot be written or the disk is too
// small.
CacheSummary fill_cache(const Dataset& dataset, Encoder& encoder, const CacheOptions& options,
                        const CacheProgressFn& progress = {});

}  // namespace stagecraft
