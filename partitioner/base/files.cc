#include "partitioner/base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

[[noreturn]] void fail(std::string_view what, const std::string& path, int error) {
  throw InputError(ExitCode::kIo, fmt::format("{} {}: {}", what, path, std::strerror(error)));
}

void write_all(Descriptor& fd, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd.get(), content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot write", path, errno);
    content.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(fd.get()) != 0) fail("cannot flush", path, errno);
  if (const int error = fd.close(); error != 0) fail("cannot close", path, error);
}

// Where what is written to `path` belongs: a link leads to the file it names. A rename would put a
// file into the place of a device, and of a link.
std::string place_of(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return path;
    fail("cannot look at", path, errno);
  }
  std::string place = path;
  if (S_ISLNK(status.st_mode)) {
    std::error_code failed;
    place = std::filesystem::canonical(path, failed).string();
    if (failed) fail("cannot follow the link", path, failed.value());
    if (::lstat(place.c_str(), &status) != 0) fail("cannot look at", place, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw InputError(ExitCode::kIo,
                     fmt::format("{}: not a regular file; choose another path", path));
  }
  return place;
}

}  // namespace

FileStream::FileStream(const std::string& path, int64_t max_bytes, ExitCode too_large)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {
  if (!fd_) fail("cannot open", path, errno);
  struct stat info{};
  if (::fstat(fd_.get(), &info) != 0) fail("cannot read", path, errno);
  if (!S_ISREG(info.st_mode)) {
    throw InputError(ExitCode::kIo, fmt::format("cannot read {}: not a regular file", path));
  }
  size_ = info.st_size;
  if (size_ > max_bytes) {
    throw FileTooLarge(too_large, fmt::format("cannot read {}: {} bytes, at most {} are allowed",
                                              path, size_, max_bytes));
  }
}

size_t FileStream::read(char* out, size_t size) {
  size_t filled = 0;
  while (filled < size) {
    const ssize_t n = ::read(fd_.get(), out + filled, size - filled);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail("cannot read", path_, errno);
    if (n == 0) break;
    filled += static_cast<size_t>(n);
  }
  return filled;
}

std::string read_file(const std::string& path, int64_t max_bytes, ExitCode too_large) {
  FileStream file(path, max_bytes, too_large);
  std::string content(static_cast<size_t>(file.size()), '\0');
  content.resize(file.read(content.data(), content.size()));  // less when cut short meanwhile
  return content;
}

void write_file_atomically(const std::string& path, std::string_view content) {
  const std::string place = place_of(path);
  const std::filesystem::path target(place);
  const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
  std::string temporary = place + ".XXXXXX";
  Descriptor fd(::mkostemp(temporary.data(), O_CLOEXEC));
  if (!fd) fail("cannot create a file beside", path, errno);
  try {
    // mkstemp makes private files; what people write is as readable as their umask says.
    const mode_t mask = ::umask(0);
    ::umask(mask);
    if (::fchmod(fd.get(), 0666 & ~mask) != 0) fail("cannot set the mode of", temporary, errno);
    write_all(fd, temporary, content);
    if (::rename(temporary.c_str(), place.c_str()) != 0) fail("cannot rename to", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder.string());
}

void sync_folder(const std::string& folder) {
  const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail("cannot open folder", folder, errno);
  // Some file systems cannot; the rename stands all the same.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail("cannot flush folder", folder, errno);
}

void require_space(const std::string& folder, Bytes need, std::string_view advice) {
  struct statvfs status{};
  if (::statvfs(folder.c_str(), &status) != 0) fail("cannot ask for free space in", folder, errno);
  const Bytes available = {static_cast<int64_t>(status.f_bavail) *
                           static_cast<int64_t>(status.f_frsize)};
  if (available < need) {
    throw InputError(ExitCode::kIo,
                     fmt::format("{}: {} of disk are needed, {} are free; {}", folder,
                                 mib_text(need), mib_text(available), advice));
  }
}

}  // namespace stagecraft
