// Worlds of socket ranks for tests: as threads of the test, or as processes of their own.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "pipeline/comm/address.h"
#include "pipeline/comm/socket.h"
#include "tests/comm/world_helpers.h"

namespace stagecraft {

// A run folder that is gone at the end of the test.
class TestFolder {
 public:
  TestFolder() : path_(make_run_folder()) {}
  ~TestFolder() { std::filesystem::remove_all(path_); }
  TestFolder(const TestFolder&) = delete;
  const std::string& path() const { return path_; }
  bool empty() const { return std::filesystem::is_empty(path_); }

 private:
  std::string path_;
};

// Options of rank 0 for a world of `size` in `folder`.
inline SocketWorldOptions test_options(const TestFolder& folder, int size) {
  SocketWorldOptions options{.folder = folder.path(), .size = size};
  options.cookie.fill(std::byte{0x5A});
  return options;
}

inline SocketWorld join_as(SocketWorldOptions options, int rank) {
  options.rank = rank;
  return connect_socket_world(options);
}

// Ranks as threads.
inline std::vector<RankOutcome> run_socket_ranks(
    const SocketWorldOptions& options, const std::function<void(int, SocketWorld&)>& body) {
  return run_ranks(options.size, [&](int rank) {
    SocketWorld world = join_as(options, rank);
    body(rank, world);
  });
}

// A process that runs `body` and exits with what it returns; killed at the end of the test if it
// still runs.
class ChildProcess {
 public:
  explicit ChildProcess(const std::function<int()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    int code = 1;
    try {
      code = body();
    } catch (const Error& error) {
      code = static_cast<int>(error.code());
    } catch (...) {
      code = 1;
    }
    ::_exit(code);
  }
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~ChildProcess() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  void kill(int signal) const { ::kill(pid_, signal); }
  // Exit code, or minus the signal.
  int join() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_;
};

}  // namespace stagecraft
