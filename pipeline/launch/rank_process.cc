#include "pipeline/launch/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "pipeline/launch/rank_environment.h"

namespace stagecraft {
namespace {

constexpr size_t kMaxLine = 64 << 10;

struct Pipe {
  Descriptor read, write;
};

Pipe make_pipe(int rank) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw CommError(
        ExitCode::kStartup, rank,
        fmt::format("cannot create a pipe for rank {}: {}", rank, std::strerror(errno)));
  }
  return {.read = Descriptor(ends[0]), .write = Descriptor(ends[1])};
}

std::vector<std::string> merged_environment(std::vector<std::string> variables) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name =
        std::string_view(*entry).substr(0, std::string_view(*entry).find('=') + 1);
    const bool replaced = std::ranges::any_of(
        variables, [&](const std::string& variable) { return variable.starts_with(name); });
    if (!replaced) variables.emplace_back(*entry);
  }
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Everything the child needs, prepared before the fork: after it only async-signal-safe calls are
// allowed.
struct ChildPlan {
  char* const* arguments;
  char* const* environment;
  pid_t parent;
  int page, output, status;  // descriptors
};

[[noreturn]] void become_rank(const ChildPlan& plan) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != plan.parent) ::_exit(static_cast<int>(ExitCode::kStartup));
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::signal(signal, SIG_DFL);
  ::signal(SIGUSR1, SIG_IGN);  // until it is handled: the default would kill
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null = ::open("/dev/null", O_RDONLY);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  if (null > STDERR_FILENO) ::close(null);
  ::dup2(plan.output, STDERR_FILENO);
  ::fcntl(plan.page, F_SETFD, 0);
  ::execve(plan.arguments[0], plan.arguments, plan.environment);
  const int error = errno;
  [[maybe_unused]] const auto n = ::write(plan.status, &error, sizeof error);
  ::_exit(static_cast<int>(ExitCode::kStartup));
}

void write_fully(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;  // nobody reads any more; the run goes on
    text.remove_prefix(n);
  }
}

}  // namespace

LineForwarder::LineForwarder(int rank, Descriptor source)
    : prefix_(fmt::format("[rank {}] ", rank)), source_(std::move(source)) {
  ::fcntl(source_.get(), F_SETFL, O_NONBLOCK);
}

void LineForwarder::forward_available() {
  char buffer[16384];
  while (source_) {
    const ssize_t n = ::read(source_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    if (n == 0) return finish();
    pending_.append(buffer, n);
    write_lines(false);
  }
}

void LineForwarder::finish() {
  source_.reset();
  write_lines(true);
}

void LineForwarder::write_lines(bool all) {
  std::string out;
  size_t start = 0;
  while (start < pending_.size()) {
    size_t end = pending_.find('\n', start);
    if (end == std::string::npos && !all && pending_.size() - start < kMaxLine) break;
    end = std::min(end, pending_.size());
    out += prefix_;
    out.append(pending_, start, end - start);
    out += '\n';
    start = end + 1;
  }
  pending_.erase(0, std::min(start, pending_.size()));
  write_fully(out);
}

RankProcess::RankProcess(int rank, const std::vector<std::string>& command,
                         std::vector<std::string> variables, const Cookie& cookie)
    : rank_(rank), memory_(ProgressPage::make_memory()), page_(memory_.get()) {
  page_.set_cookie(cookie);
  Pipe output = make_pipe(rank), status = make_pipe(rank);
  variables.push_back(fmt::format("{}={}", kProgressVariable, memory_.get()));
  std::vector<std::string> arguments = command,
                           environment = merged_environment(std::move(variables));
  const auto argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  const ChildPlan plan{.arguments = argument_pointers.data(),
                       .environment = environment_pointers.data(),
                       .parent = ::getpid(),
                       .page = memory_.get(),
                       .output = output.write.get(),
                       .status = status.write.get()};
  pid_ = ::fork();
  if (pid_ == 0) become_rank(plan);
  if (pid_ < 0) {
    throw CommError(ExitCode::kStartup, rank,
                    fmt::format("cannot start rank {}: {}", rank, std::strerror(errno)));
  }
  ::setpgid(pid_, pid_);  // whoever is first; the other call fails harmlessly
  status.write.reset();
  int error = 0;
  ssize_t n;
  do {
    n = ::read(status.read.get(), &error, sizeof error);
  } while (n < 0 && errno == EINTR);
  if (n == sizeof error) {
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    throw CommError(
        ExitCode::kStartup, rank,
        fmt::format("cannot start rank {}: {}: {}", rank, command.front(), std::strerror(error)));
  }
  lines_ = LineForwarder(rank, std::move(output.read));
}

RankProcess::~RankProcess() {
  if (!alive()) return;
  signal_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void RankProcess::signal_group(int signal) const {
  if (pid_ > 0) ::kill(-pid_, signal);
}

RankProcess::Change RankProcess::poll_change() {
  siginfo_t info{};
  if (!alive() ||
      ::waitid(P_PID, pid_, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return Change::kNone;
  }
  const bool ended =
      info.si_code == CLD_EXITED || info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  // While the rank is a zombie its number cannot be another group's.
  if (ended) signal_group(SIGKILL);
  ::waitid(P_PID, pid_, &info, (ended ? WEXITED : WSTOPPED | WCONTINUED) | WNOHANG);
  if (!ended) return info.si_code == CLD_CONTINUED ? Change::kContinued : Change::kStopped;
  (info.si_code == CLD_EXITED ? exit_code_ : ended_by_) = info.si_status;
  pid_ = -1;
  return Change::kEnded;
}

}  // namespace stagecraft
