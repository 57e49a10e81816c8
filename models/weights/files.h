// Reading and writing of whole files that may be hostile, full or slow: links, pipes and folders
// are refused, interrupted calls repeated, short ones continued. Internal to models/weights and
// models/text.
//
// Any thread; one object by one thread at a time. Every function may
// block on the disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "partitioner/base/descriptor.h"

namespace stagecraft {

// A regular file open for reading.
class InputFile {
 public:
  // Throws InputError: kIo when it cannot be opened, kNoCheckpoint when it is not a regular file.
  // Never waits on a pipe.
  explicit InputFile(const std::string& path);
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // when it was opened
  // Throws InputError: kIo, or kNoCheckpoint when the file ends before `offset` + `out.size()`.
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

// Writes `path` + ".partial" and puts it in place on `commit`; without it nothing is left behind.
// Every failure is an InputError(kIo) naming the file.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  const std::string& path() const { return path_; }
  void write(int64_t offset, std::span<const std::byte> data);
  void commit();  // fsync, rename, fsync of the folder

 private:
  std::string path_, partial_;
  Descriptor fd_;
};

}  // namespace stagecraft
