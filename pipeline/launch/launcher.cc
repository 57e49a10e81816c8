#include "pipeline/launch/launcher.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>

#include "pipeline/comm/describe.h"
#include "pipeline/launch/rank_environment.h"
#include "pipeline/launch/rank_process.h"
#include "pipeline/launch/run_folder.h"
#include "pipeline/launch/verdict.h"

namespace stagecraft {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Signals come through a descriptor while this lives; SIGPIPE is ignored, also by the ranks.
// What was ignored when the program started stays so: `nohup`, and SIGINT behind a shell's `&`.
// (A blocked signal comes through the descriptor even when it is ignored.)
class SignalReader {
 public:
  SignalReader() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGCHLD);
    child_before_ = ::signal(SIGCHLD, SIG_DFL);  // ignored, it would take the ranks' exit codes
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
      if (!is_ignored(signal)) sigaddset(&signals_, signal);
    }
    ::sigprocmask(SIG_BLOCK, &signals_, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);
    fd_ = Descriptor(::signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_)
      throw InputError(ExitCode::kIo, "cannot create a signal descriptor; raise `ulimit -n`");
  }
  ~SignalReader() {
    ::signal(SIGPIPE, pipe_before_);
    ::signal(SIGCHLD, child_before_);
    ::sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalReader(const SignalReader&) = delete;

  int fd() const { return fd_.get(); }
  // The next signal that came, 0 if none.
  int next() {
    signalfd_siginfo info{};
    return ::read(fd_.get(), &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  static bool is_ignored(int signal) {
    struct sigaction action{};
    return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
  }

  sigset_t signals_{}, before_{};
  void (*pipe_before_)(int) = SIG_DFL;
  void (*child_before_)(int) = SIG_DFL;
  Descriptor fd_;
};

// Nobody may read any more; that ends no run.
void warn(const std::string& line) { std::fputs((line + '\n').c_str(), stderr); }

struct Watch {
  uint64_t beats = 0;
  Clock::time_point changed = Clock::now();
  bool stopped = false;  // by SIGSTOP
};

class Supervisor {
 public:
  explicit Supervisor(const LaunchOptions& options)
      : options_(options), cookie_(make_cookie()), watches_(options.ranks) {}

  LaunchResult run() {
    start_all();
    while (alive()) {
      wait_for_events();
      handle_signals();
      for (auto& process : processes_) process->lines().forward_available();
      reap();
      check_progress();
      act_on_deadlines();
    }
    for (auto& process : processes_) {
      process->lines().forward_available();
      process->lines().finish();
    }
    if (!result_) conclude();
    return finished(*result_);
  }

 private:
  bool alive() const {
    return std::ranges::any_of(processes_, [](const auto& process) { return process->alive(); });
  }

  void start_all() {
    try {
      for (int rank = 0; rank < options_.ranks; ++rank) {
        processes_.push_back(
            std::make_unique<RankProcess>(rank, options_.command, variables_of(rank), cookie_));
      }
    } catch (const Error& error) {
      result_ = {.code = ExitCode::kStartup,
                 .culprit = static_cast<int>(processes_.size()),
                 .reason = error.what()};
      kill_all();
    }
  }

  std::vector<std::string> variables_of(int rank) const {
    std::vector<std::string> variables = {
        fmt::format("{}={}", kRankVariable, rank),
        fmt::format("{}={}", kSizeVariable, options_.ranks),
        fmt::format("{}={}", kFolderVariable, folder_.path()), "OMP_WAIT_POLICY=PASSIVE",
        fmt::format("OMP_NUM_THREADS={}", options_.threads_per_rank)};
    for (const auto& [name, value] : options_.environment) {
      const std::string assignment = name + '=';
      std::erase_if(variables,
                    [&](const std::string& variable) { return variable.starts_with(assignment); });
      variables.push_back(assignment + value);
    }
    return variables;
  }

  void wait_for_events() {
    std::vector<pollfd> entries{{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (auto& process : processes_) {
      entries.push_back({.fd = process->lines().fd(), .events = POLLIN, .revents = 0});
    }
    auto timeout =
        std::clamp<milliseconds>(options_.stall_limit / 4, milliseconds(5), milliseconds(200));
    for (const auto& when : {decide_at_, kill_at_, grace_until_}) {
      if (!when) continue;
      timeout = std::clamp(std::chrono::ceil<milliseconds>(*when - Clock::now()), milliseconds(0),
                           timeout);
    }
    ::poll(entries.data(), entries.size(), static_cast<int>(timeout.count()));
  }

  void handle_signals() {
    while (const int signal = signals_.next()) {
      if (signal == SIGCHLD) continue;
      if (signal == SIGUSR1) {
        for (auto& process : processes_) process->signal_group(SIGUSR1);
        continue;
      }
      if (!asked_to_stop_) {
        asked_to_stop_ = signal;
        asked_at_ = Clock::now();
        if (result_ || first_secondary_) continue;  // already ending
        warn("stopping after this step; press Ctrl-C again to stop at once");
        for (auto& process : processes_) process->signal_group(SIGTERM);
        grace_until_ = Clock::now() + options_.grace_limit;
      } else if (signal == SIGINT && Clock::now() - asked_at_ >= options_.same_request) {
        stop_at_once("SIGINT");
      }
    }
  }

  void stop_at_once(const std::string& why) {
    if (!result_) {
      result_ = {.code = stop_code(),
                 .reason = fmt::format("stopped at once by {}; nothing was saved", why)};
    }
    kill_all();
  }

  ExitCode stop_code() const {
    return asked_to_stop_ == SIGINT ? ExitCode::kInterrupted : ExitCode::kTerminated;
  }

  void reap() {
    std::vector<RankEnd> ended;
    for (auto& process : processes_) {
      for (;;) {
        const auto change = process->poll_change();
        if (change == RankProcess::Change::kNone) break;
        if (change == RankProcess::Change::kStopped) note_stopped(process->rank(), true);
        if (change == RankProcess::Change::kContinued) note_stopped(process->rank(), false);
        if (change == RankProcess::Change::kEnded) ended.push_back(end_of(*process));
      }
    }
    // What ended between two looks has no order; a signal is the likelier cause, a lost peer the
    // least likely.
    std::ranges::stable_sort(ended, {}, [](const RankEnd& end) {
      return end.signal != 0 ? 0 : is_secondary(end) ? 2 : 1;
    });
    for (const RankEnd& end : ended) judge(end);
  }

  RankEnd end_of(const RankProcess& process) const {
    return {.rank = process.rank(),
            .exit_code = process.exit_code(),
            .signal = process.ended_by(),
            .by_launcher = result_.has_value(),
            .progress = process.page().read()};
  }

  void note_stopped(int rank, bool stopped) {
    watches_[rank].stopped = stopped;
    const std::string who = rank_label(rank, options_.labels);
    if (result_) return;
    if (stopped) {
      warn(fmt::format("{} was stopped by a signal in {}; waiting {} for it to go on", who,
                       describe_place(processes_[rank]->page().read()),
                       describe_duration(options_.stall_limit)));
    } else {
      watches_[rank].changed = Clock::now();
      warn(fmt::format("{} goes on", who));
    }
  }

  void judge(const RankEnd& end) {
    if (left_orderly(end)) {
      if (end.exit_code != 0) rank_stop_code_ = static_cast<ExitCode>(end.exit_code);
      return;
    }
    if (result_) {
      // Dead before our signal can have reached it: another failure, not its echo.
      if (!end.by_launcher && !is_secondary(end) && end.rank != result_->culprit)
        also_.push_back(end);
      return;
    }
    // A rank that cannot save yet dies of the SIGTERM that asked it to stop, or leaves at once.
    if (asked_to_stop_ &&
        (end.signal == SIGTERM || end.exit_code == static_cast<int>(ExitCode::kInterrupted) ||
         end.exit_code == static_cast<int>(ExitCode::kTerminated))) {
      result_ = {.code = stop_code(), .reason = "stopped before the last step was saved"};
      return stop_others();
    }
    if (is_secondary(end)) {
      if (!first_secondary_) {
        first_secondary_ = end;
        decide_at_ = Clock::now() + options_.culprit_wait;
      }
      return;
    }
    blame(end);
  }

  void blame(const RankEnd& end) {
    result_ = {
        .code = code_of(end), .culprit = end.rank, .reason = describe_end(end, options_.labels)};
    stop_others();
  }

  void stop_others() {
    decide_at_.reset();
    grace_until_.reset();
    for (auto& process : processes_) process->signal_group(SIGTERM);
    kill_at_ = Clock::now() + options_.terminate_wait;
  }

  void kill_all() {
    decide_at_.reset();
    kill_at_.reset();
    grace_until_.reset();
    for (auto& process : processes_) process->signal_group(SIGKILL);
  }

  void check_progress() {
    if (result_) return;
    const auto now = Clock::now();
    std::optional<int> stalled;
    for (auto& process : processes_) {
      if (!process->alive()) continue;
      Watch& watch = watches_[process->rank()];
      const uint64_t beats = process->page().read().beats;
      if (beats != watch.beats) {
        watch.beats = beats;
        watch.changed = now;
      }
      if (now - watch.changed >= options_.stall_limit && !stalled) stalled = process->rank();
    }
    if (stalled) stall(*stalled);
  }

  void stall(int first) {
    std::string places;
    std::vector<StalledRank> stalled;
    for (auto& process : processes_) {
      if (!process->alive()) continue;
      const int rank = process->rank();
      const ProgressSnapshot progress = process->page().read();
      places += fmt::format("{}rank {} in {}", places.empty() ? "" : "; ", rank,
                            describe_place(progress));
      stalled.push_back(
          {.rank = rank, .stopped = watches_[rank].stopped, .section = progress.section});
    }
    const int culprit = culprit_of_stall(stalled, first);
    result_ = {.code = ExitCode::kStall,
               .culprit = culprit,
               .reason = fmt::format(
                   "{} made no progress for {}{} ({})", rank_label(culprit, options_.labels),
                   describe_duration(options_.stall_limit),
                   watches_[culprit].stopped ? ", stopped by a signal" : "", places)};
    kill_all();
  }

  void act_on_deadlines() {
    const auto now = Clock::now();
    if (grace_until_ && now >= *grace_until_) {
      stop_at_once(fmt::format("the grace limit of {}", describe_duration(options_.grace_limit)));
    }
    if (decide_at_ && now >= *decide_at_) blame(*first_secondary_);
    if (kill_at_ && now >= *kill_at_) kill_all();
  }

  // All ranks have ended and none was blamed.
  void conclude() {
    if (first_secondary_) {
      blame(*first_secondary_);
    } else if (rank_stop_code_ && asked_to_stop_) {
      result_ = {.code = stop_code(), .reason = "stopped after the step"};
    } else if (rank_stop_code_) {
      result_ = {.code = *rank_stop_code_, .reason = "stopped after the step, a rank was asked to"};
    } else {  // a signal that came after the last step changed nothing
      result_ = LaunchResult{};
    }
  }

  // The line, with what became of the others.
  LaunchResult finished(LaunchResult result) const {
    if (asked_to_stop_) result.asked_to_stop = stop_code();
    for (const RankEnd& end : also_) {
      result.reason += fmt::format("; {} also died", rank_label(end.rank, options_.labels));
    }
    if (result.culprit >= 0 && options_.ranks > 1)
      result.reason += "; the other ranks were stopped";
    return result;
  }

  const LaunchOptions& options_;
  const Cookie cookie_;
  SignalReader signals_;
  RunFolder folder_;
  std::vector<std::unique_ptr<RankProcess>> processes_;  // by rank
  std::vector<Watch> watches_;                           // by rank
  int asked_to_stop_ = 0;                                // the first SIGINT, SIGTERM or SIGHUP
  Clock::time_point asked_at_;
  std::optional<ExitCode> rank_stop_code_;
  std::optional<RankEnd> first_secondary_;
  std::vector<RankEnd> also_;
  std::optional<Clock::time_point> decide_at_, kill_at_, grace_until_;
  std::optional<LaunchResult> result_;  // set once: the verdict
};

}  // namespace

LaunchResult launch(const LaunchOptions& options) {
  check(options.ranks >= 1 && !options.command.empty(), "a launch has ranks and a command");
  return Supervisor(options).run();
}

std::string own_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

}  // namespace stagecraft
