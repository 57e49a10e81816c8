// What the cache knows of one data set with one set of settings: facts of every file, and where
// each sample's tensors are. Written at the end of a fill, whole or not at all; a rank needs
// nothing else to find its tensors.
//
// Plain values; functions block on the disk.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "pipeline/dataset/dataset.h"

namespace stagecraft {

// Of a picture that decoded.
struct PictureFacts {
  FileStamp stamp;
  std::string hash;               // SHA-256 of the file
  int64_t width = 0, height = 0;  // upright
  bool operator==(const PictureFacts&) const = default;
};

struct CacheManifest {
  std::string index_hash;                        // of prompt.json
  int64_t width = 0, height = 0;                 // resolution
  std::map<std::string, PictureFacts> pictures;  // by path as written in prompt.json
  std::vector<std::string> captions;             // keys; the empty caption's first
  std::vector<std::string> latents;              // for each sample its key
  std::vector<int64_t> caption_of;               // for each sample its place in `captions`
  bool operator==(const CacheManifest&) const = default;
};

// Throws InputError(kDataInvalid) when the file is damaged, or larger than a manifest of `dataset`
// can be; InputError(kIo) when it is not there.
CacheManifest read_manifest(const std::string& path, const Dataset& dataset);
void write_manifest(const std::string& path, const CacheManifest& manifest);

}  // namespace stagecraft
