// A program with children (pipetrain and its ranks) that a test watches, signals and waits for.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/programs.h"

namespace stagecraft {

// The value of `name` in a process's environment at its start; empty if there is none.
inline std::string environment_of(pid_t pid, const std::string& name) {
  std::ifstream variables(fmt::format("/proc/{}/environ", pid));
  for (std::string entry; std::getline(variables, entry, '\0');) {
    if (entry.starts_with(name + "=")) return entry.substr(name.size() + 1);
  }
  return "";
}

// A program that runs while the test goes on; killed with this object.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& arguments, std::string error_log)
      : error_log_(std::move(error_log)) {
    std::vector<char*> argv;
    for (const std::string& argument : arguments)
      argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int out = ::open("/dev/null", O_WRONLY),
                err = ::open(error_log_.c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(out, 1);
      ::dup2(err, 2);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~RunningProgram() {
    if (!ended_) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }
  pid_t pid() const { return pid_; }

  std::vector<pid_t> children() const {
    std::vector<pid_t> found;
    std::ifstream list(fmt::format("/proc/{0}/task/{0}/children", pid_));
    for (pid_t child; list >> child;) found.push_back(child);
    return found;
  }
  // The process of that rank; -1 while there is none.
  pid_t rank(int rank) const {
    for (const pid_t child : children()) {
      if (environment_of(child, "STAGECRAFT_ROLE") == "rank" &&
          environment_of(child, "STAGECRAFT_RANK") == std::to_string(rank)) {
        return child;
      }
    }
    return -1;
  }

  // Exit code; -1 when it does not end in time.
  int wait(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    for (int status = 0; std::chrono::steady_clock::now() < end; ::usleep(5000)) {
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        ended_ = true;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      }
    }
    return -1;
  }
  std::string errors() const { return text_of(error_log_); }

 private:
  std::string error_log_;
  pid_t pid_ = -1;
  bool ended_ = false;
};

}  // namespace stagecraft
