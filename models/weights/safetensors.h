// Strict reader and writer of the safetensors format (8-byte header length, JSON, data).
//
// Files are hostile: sizes and offsets are checked before anything is allocated, coverage is exact,
// duplicate names, unknown keys, trailing bytes, links, pipes are refused. Reads with pread into
// the caller's memory, no mapping. A reader is owned by one thread at a time. Format:
// huggingface/safetensors README.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t bytes() const;
  bool operator==(const TensorInfo&) const = default;
};

class SafetensorsReader {
 public:
  // Throws InputError: kIo when it cannot be read, kNoCheckpoint ("file: byte N: …" or "file:
  // tensor '…': …") when it is damaged, a link or no regular file.
  explicit SafetensorsReader(const std::string& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;
  const std::string& path() const;
  const std::map<std::string, TensorInfo>& tensors() const;
  // Tensors of the format's other dtypes, which cannot be read here: name to dtype as written
  // ("F64").
  const std::map<std::string, std::string>& unreadable() const;
  const std::map<std::string, std::string>& metadata() const;
  // Fills `out`, whose size must be the tensor's. Throws InputError: kPlanMismatch when there is no
  // such tensor, its dtype cannot be read or its size is another; kNoCheckpoint when the file was
  // cut short meanwhile.
  void read(const std::string& name, std::span<std::byte> out) const;
  // The same for the part that begins `offset` bytes into the tensor.
  void read_part(const std::string& name, int64_t offset, std::span<std::byte> out) const;
  // Bytes of the header as they stand in the file, for identities.
  const std::string& header() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes beside (`path` + ".partial"), fsyncs, renames on `finish`; without `finish` nothing is
// left behind. The table is fixed at the start so that tensors can be streamed. Every short write,
// ENOSPC or close error is an InputError(kIo). An existing `path` is replaced.
class SafetensorsWriter {
 public:
  // Throws InternalError for a name that occurs twice or that the reader would refuse.
  SafetensorsWriter(const std::string& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;
  // In any order, each once, whole.
  void write(const std::string& name, std::span<const std::byte> data);
  void finish();  // throws InternalError when a tensor is missing
  // Length and header as they stand in the file, before the first tensor: for digests.
  const std::string& header() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecraft
