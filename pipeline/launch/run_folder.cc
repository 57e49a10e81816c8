#include "pipeline/launch/run_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "partitioner/base/error.h"
#include "pipeline/comm/address.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

constexpr char kLockName[] = "lock";
constexpr std::string_view kPrefix = "stagecraft-";

bool lock_at_once(const Descriptor& fd) { return fd && ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0; }

// A folder without a lock file is one that is being made.
void remove_if_abandoned(const fs::path& folder) {
  struct stat status{};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
      status.st_uid != ::geteuid())
    return;
  const Descriptor lock(
      ::open((folder / kLockName).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!lock_at_once(lock)) return;
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

void sweep(const fs::path& base) {
  std::error_code error;
  for (fs::directory_iterator it(base, error), end; !error && it != end; it.increment(error)) {
    if (it->path().filename().string().starts_with(kPrefix)) remove_if_abandoned(it->path());
  }
}

}  // namespace

RunFolder::RunFolder() : path_(make_run_folder()) {
  // Locked under another name first: under its own name it is always locked while the run lives.
  const std::string made = path_ + "/lock.new", name = path_ + "/" + kLockName;
  lock_ = Descriptor(::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!lock_at_once(lock_) || ::rename(made.c_str(), name.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    throw InputError(ExitCode::kIo,
                     fmt::format("cannot lock the run's folder {}: {}", path_, reason));
  }
  sweep(fs::path(path_).parent_path());
}

RunFolder::~RunFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace stagecraft
