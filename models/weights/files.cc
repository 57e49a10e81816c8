#include "models/weights/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

// Linux moves at most 0x7ffff000 bytes in one call.
constexpr size_t kMaxTransfer = size_t{1} << 30;

[[noreturn]] void fail(const std::string& path, std::string_view action) {
  const int error = errno;
  throw InputError(ExitCode::kIo, fmt::format("{}: cannot {}: {}", path, action, strerror(error)));
}

[[noreturn]] void fail_damaged(const std::string& path, const std::string& what) {
  throw InputError(ExitCode::kNoCheckpoint, fmt::format("{}: {}", path, what));
}

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  do {
    fd_ = Descriptor(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  } while (!fd_ && errno == EINTR);
  if (!fd_) {
    if (errno == ELOOP) fail_damaged(path, "is a symbolic link; give the file itself");
    if (errno == ENXIO) fail_damaged(path, "is a socket or pipe, not a regular file");
    fail(path, "open for reading");
  }
  struct stat status{};
  if (fstat(fd_.get(), &status) != 0) fail(path, "stat");
  if (!S_ISREG(status.st_mode)) fail_damaged(path, "is not a regular file");
  size_ = status.st_size;
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t got = pread(fd_.get(), out.data(), std::min(out.size(), kMaxTransfer), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, fmt::format("read at byte {}", offset));
    if (got == 0) {
      fail_damaged(path_, fmt::format("byte {}: the file ends here, {} more bytes expected; it was "
                                      "cut short",
                                      offset, out.size()));
    }
    offset += got;
    out = out.subspan(static_cast<size_t>(got));
  }
}

OutputFile::OutputFile(const std::string& path) : path_(path), partial_(path + ".partial") {
  unlink(partial_.c_str());  // of a run that was killed
  fd_ = Descriptor(
      open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd_) fail(partial_, "create");
}

OutputFile::~OutputFile() {
  if (fd_) unlink(partial_.c_str());
}

void OutputFile::write(int64_t offset, std::span<const std::byte> data) {
  check(static_cast<bool>(fd_), "OutputFile::write after commit");
  while (!data.empty()) {
    const ssize_t put = pwrite(fd_.get(), data.data(), std::min(data.size(), kMaxTransfer), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put == 0) errno = EIO;
    if (put <= 0) fail(partial_, fmt::format("write {} bytes at byte {}", data.size(), offset));
    offset += put;
    data = data.subspan(static_cast<size_t>(put));
  }
}

void OutputFile::commit() {
  check(static_cast<bool>(fd_), "OutputFile::commit twice");
  if (fsync(fd_.get()) != 0) fail(partial_, "flush to disk");
  const int unclosed = fd_.close();
  if (unclosed != 0 || rename(partial_.c_str(), path_.c_str()) != 0) {
    const int error = unclosed != 0 ? unclosed : errno;
    unlink(partial_.c_str());
    errno = error;
    fail(partial_, unclosed != 0 ? "close" : "rename to its final name");
  }
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const Descriptor folder(
      open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) fail(parent, "open the folder");
  // Some file systems cannot sync a folder; the rename stands all the same.
  if (fsync(folder.get()) != 0 && errno != EINVAL) fail(parent, "flush the folder to disk");
}

}  // namespace stagecraft
