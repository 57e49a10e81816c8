// Whole files in and out, with every error an exception: sizes are checked before anything is
// allocated, and a file that is written is either the old one or the new one.
//
// Any thread; both functions block on the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "partitioner/base/error.h"

namespace stagecraft {

class FileTooLarge : public InputError {
 public:
  explicit FileTooLarge(const std::string& message) : InputError(ExitCode::kIo, message) {}
};

// Content of a regular file (folders, pipes and devices are refused, never waited for). Throws
// InputError(kIo) when it cannot be read, FileTooLarge when it holds more than `max_bytes`.
std::string read_file(const std::string& path, int64_t max_bytes);

// Writes beside `path`, flushes to the disk and renames. On any error, closing included, the old
// file stays, the new one is removed and InputError(kIo) says what failed.
void write_file_atomically(const std::string& path, std::string_view content);

}  // namespace stagecraft
