// Tensors on disk, one safetensors file for each key, and who may write them.
//
// A key is a SHA-256 of everything that decided the tensors, so a file is never out of date: it is
// there and whole, or it is made again. Reading needs no lock and may happen in any number of
// processes; writing needs a CacheLock.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/base/descriptor.h"
#include "partitioner/base/units.h"

namespace stagecraft {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

class CacheStore {
 public:
  // Nothing is created here. `folder` is the cache's folder, `kind` the sort of thing kept:
  // "latents", "captions".
  CacheStore(const std::string& folder, const std::string& kind);
  std::string path_of(const std::string& key) const;
  // Whether a file is there, whole by its size and header, with exactly these fp32 tensors. Content
  // is not read.
  bool holds(const std::string& key, std::span<const NamedShape> expected) const;
  // Atomic: a process that is killed leaves no file of this key. Tensors are fp32, contiguous.
  // Throws InputError(kIo).
  void write(const std::string& key,
             std::span<const std::pair<std::string, at::Tensor>> tensors) const;
  // Fills `out` and compares the checksum kept with it. Throws InputError(kDataInvalid) naming file
  // and remedy.
  void read(const std::string& key, const std::string& name, std::span<float> out) const;
  // Disk space of one file, whole blocks of 4 KiB.
  static Bytes disk_bytes(std::span<const NamedShape> tensors);

 private:
  std::string folder_;
};

// Holds the cache's folder for one writing process (flock), creating it if missing. Waits for
// another process, calling `on_wait` about once a second, for an hour at most; then, or when the
// folder cannot be written, throws InputError(kIo).
class CacheLock {
 public:
  CacheLock(const std::string& folder, const std::function<void()>& on_wait);

 private:
  Descriptor fd_;
};

}  // namespace stagecraft
