// Whole files in and out, with every error an exception: sizes are checked before anything is
// allocated, and a file that is written is either the old one or the new one.
//
// Any thread, a FileStream by one at a time; all of it blocks on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "partitioner/base/descriptor.h"
#include "partitioner/base/error.h"
#include "partitioner/base/units.h"

namespace stagecraft {

class FileTooLarge : public InputError {
 public:
  using InputError::InputError;
};

// A regular file, read from front to back. Folders, pipes and devices are refused, never waited
// for. Throws InputError(kIo) when it cannot be read, FileTooLarge with the code `too_large` when
// it holds more than `max_bytes`: what is wrong with such a file is what it holds, not the disk.
class FileStream {
 public:
  FileStream(const std::string& path, int64_t max_bytes, ExitCode too_large = ExitCode::kIo);
  int64_t size() const { return size_; }  // when it was opened
  // Fills `out` as far as the file goes; returns how many bytes.
  size_t read(char* out, size_t size);

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;
};

// Content of a regular file, with the same refusals.
std::string read_file(const std::string& path, int64_t max_bytes,
                      ExitCode too_large = ExitCode::kIo);

// Writes beside `path`, flushes to the disk and renames; a link is followed to the file it names.
// On any error, closing included, the old file stays, the new one is removed and InputError(kIo)
// says what failed. What is there and no regular file (a device, a pipe, a folder) is refused.
void write_file_atomically(const std::string& path, std::string_view content);

// Flushes the names in a folder to the disk: makes a rename survive a power cut. Throws
// InputError(kIo).
void sync_folder(const std::string& folder);

// Throws InputError(kIo), which ends in `advice`, when the file system of `folder` has less than
// `need` for this user, or does not say.
void require_space(const std::string& folder, Bytes need, std::string_view advice);

}  // namespace stagecraft
