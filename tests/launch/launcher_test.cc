#include "pipeline/launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/comm/socket_helpers.h"
#include "tests/launch/test_rank.h"
#include "tests/support/sanitized.h"

namespace stagecraft {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Clock = std::chrono::steady_clock;

bool is_gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(stat, text)) return true;
  const char state = text[text.rfind(')') + 2];
  return state == 'Z' || state == 'X';
}

// A launch in a process of its own, so that it can be signalled. Its folders are made in `folder_`;
// every rank tells its process id when it is connected.
class LaunchMultiProcess : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(::pipe(ranks_), 0);
    ASSERT_EQ(::pipe(result_), 0);
    ::fcntl(result_[1], F_SETFD, FD_CLOEXEC);
  }
  void TearDown() override {
    for (const int fd : {ranks_[0], ranks_[1], result_[0], result_[1]}) ::close(fd);
  }

  void start(const std::string& behaviour, int actor = -1, LaunchOptions options = {}) {
    options.ranks = 3;
    if (options.command.empty()) options.command = {own_program(), "--rank-behaviour", behaviour};
    options.labels = {"stage 0", "stage 1", "stage 2"};
    options.environment = {{kActorVariable, std::to_string(actor)},
                           {kPipeVariable, std::to_string(ranks_[1])}};
    launcher_.emplace([&] {
      ::setenv("TMPDIR", folder_.path().c_str(), 1);
      ::unsetenv("XDG_RUNTIME_DIR");
      const LaunchResult result = launch(options);
      ::dprintf(result_[1], "%s\n", result.reason.c_str());
      return static_cast<int>(result.code);
    });
  }

  // Waits until all ranks are in step 1.
  void read_pids() {
    std::istringstream lines(read_three_lines());
    for (int rank, pid; lines >> rank >> pid;) pids_[rank] = pid;
  }

  std::string read_three_lines() {
    std::string text;
    char buffer[256];
    while (std::ranges::count(text, '\n') < 3) {
      const ssize_t n = ::read(ranks_[0], buffer, sizeof buffer);
      if (n <= 0) {
        ADD_FAILURE() << "the pipe of the ranks was closed";
        break;
      }
      text.append(buffer, n);
    }
    return text;
  }

  void expect_end(ExitCode code, const testing::Matcher<const std::string&>& reason) {
    EXPECT_EQ(launcher_->join(), static_cast<int>(code));
    char buffer[2048];
    const ssize_t n = ::read(result_[0], buffer, sizeof buffer);
    const std::string line(buffer, std::max<ssize_t>(n - 1, 0));
    EXPECT_THAT(line, reason);
    for (const pid_t pid : pids_) EXPECT_TRUE(pid == 0 || is_gone(pid)) << pid;
    EXPECT_TRUE(folder_.empty()) << "the run's folder was left";
  }

  // The bound of the fault contract: everyone is gone two seconds after the first death.
  void expect_within_two_seconds(Clock::time_point death) {
    EXPECT_LT(Clock::now() - death, 2s * kSlower);
  }

  TestFolder folder_;
  int ranks_[2], result_[2];
  std::array<pid_t, 3> pids_{};
  std::optional<ChildProcess> launcher_;
};

TEST_F(LaunchMultiProcess, RanksThatSayGoodbyeEndWithZero) {
  start("finish");
  read_pids();
  expect_end(ExitCode::kOk, "");
}

TEST_F(LaunchMultiProcess, AKilledRankIsNamedWithItsPlace) {
  start("kill", 2);
  read_pids();
  expect_end(ExitCode::kRankDied,
             "rank 2 (stage 2) was killed by signal 9 (SIGKILL) in step 2, section forward, last "
             "operation F0.0; "
             "the other ranks were stopped");
}

TEST_F(LaunchMultiProcess, ARankKilledAtARandomMomentIsNamedAndAllAreGoneInTwoSeconds) {
  start("train");
  read_pids();
  const auto death = Clock::now();
  ::kill(pids_[1], SIGKILL);
  expect_end(ExitCode::kRankDied,
             StartsWith("rank 1 (stage 1) was killed by signal 9 (SIGKILL) in step "));
  expect_within_two_seconds(death);
}

TEST_F(LaunchMultiProcess, ACrashIsNamedWithItsSignal) {
  start("segv", 0);
  expect_end(ExitCode::kRankDied,
             StartsWith("rank 0 (stage 0) was killed by signal 11 (SIGSEGV) in step 2"));
}

TEST_F(LaunchMultiProcess, ARankThatLeavesEarlyWithZeroIsADeath) {
  start("early", 1);
  expect_end(ExitCode::kRankDied,
             StartsWith("rank 1 (stage 1) left before the end, in step 2, section forward"));
}

TEST_F(LaunchMultiProcess, ARanksOwnErrorGivesCodeAndLine) {
  start("error", 1);
  expect_end(ExitCode::kOutOfMemory,
             StartsWith("rank 1 (stage 1) failed in step 2, section forward, last operation F0.0: "
                        "out of memory: 5 MiB over"));
}

TEST_F(LaunchMultiProcess, ASpinningRankIsAStall) {
  LaunchOptions options;
  options.stall_limit = 500ms;
  start("spin", 1, options);
  expect_end(ExitCode::kStall,
             AllOf(StartsWith("rank 1 (stage 1) made no progress for 500 ms (rank 0 in step 2, "
                              "section vote, last operation F0.0; "),
                   HasSubstr("rank 1 in step 2, section backward")));
}

TEST_F(LaunchMultiProcess, AStoppedRankIsAStallAfterTheLimit) {
  LaunchOptions options;
  options.stall_limit = 500ms;
  start("stop", 2, options);
  expect_end(ExitCode::kStall,
             StartsWith("rank 2 (stage 2) made no progress for 500 ms, stopped by a signal"));
}

TEST_F(LaunchMultiProcess, AStoppedRankThatGoesOnDoesNoHarm) {
  start("train");
  read_pids();
  ::kill(pids_[1], SIGSTOP);
  ::kill(pids_[1], SIGCONT);
  launcher_->kill(SIGTERM);
  expect_end(ExitCode::kTerminated, "stopped after the step");
}

TEST_F(LaunchMultiProcess, TheFirstInterruptLetsTheRanksFinishTheirStep) {
  start("train");
  read_pids();
  launcher_->kill(SIGINT);
  expect_end(ExitCode::kInterrupted, "stopped after the step");
}

TEST_F(LaunchMultiProcess, AHangUpThatNohupIgnoresStopsNothing) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  start("train");
  ::signal(SIGHUP, before);
  read_pids();
  launcher_->kill(SIGHUP);
  launcher_->kill(SIGINT);  // what stops them: a hang-up that counted would end with 143
  expect_end(ExitCode::kInterrupted, "stopped after the step");
}

TEST_F(LaunchMultiProcess, ExitCodesAreSeenWhereTheCallerIgnoresSigchld) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  start("error", 1);
  ::signal(SIGCHLD, before);
  EXPECT_EQ(launcher_->join(), static_cast<int>(ExitCode::kOutOfMemory));
}

TEST_F(LaunchMultiProcess, AnInterruptAfterTheLastStepChangesNothing) {
  start("late");
  read_pids();
  launcher_->kill(SIGINT);
  expect_end(ExitCode::kOk, "");
}

TEST_F(LaunchMultiProcess, ALaterInterruptKills) {
  LaunchOptions options;
  options.same_request = 0ms;
  start("resist", -1, options);
  read_pids();
  launcher_->kill(SIGINT);
  read_three_lines();  // the ranks were asked to stop
  launcher_->kill(SIGINT);
  expect_end(ExitCode::kInterrupted, "stopped at once by SIGINT; nothing was saved");
}

TEST_F(LaunchMultiProcess, AnInterruptDeliveredTwiceCountsOnce) {
  LaunchOptions options;
  options.same_request = 1h;
  options.grace_limit = 300ms;
  start("resist", -1, options);
  read_pids();
  launcher_->kill(SIGINT);
  read_three_lines();  // the ranks were asked to stop
  launcher_->kill(SIGINT);
  expect_end(ExitCode::kInterrupted, HasSubstr("the grace limit of 300 ms"));
}

TEST_F(LaunchMultiProcess, TheGraceLimitKills) {
  LaunchOptions options;
  options.grace_limit = 100ms;
  start("resist", -1, options);
  read_pids();
  launcher_->kill(SIGINT);
  expect_end(ExitCode::kInterrupted, HasSubstr("the grace limit of 100 ms"));
}

TEST_F(LaunchMultiProcess, ASigtermToOneRankStopsAllAfterTheirStep) {
  start("train");
  read_pids();
  ::kill(pids_[1], SIGTERM);
  expect_end(ExitCode::kTerminated, HasSubstr("a rank was asked to"));
}

TEST_F(LaunchMultiProcess, RanksDoNotOutliveAKilledLauncher) {
  start("train");
  read_pids();
  const auto death = Clock::now();
  launcher_->kill(SIGKILL);
  EXPECT_EQ(launcher_->join(), -SIGKILL);
  for (const pid_t pid : pids_) {
    while (!is_gone(pid)) {
      ASSERT_LT(Clock::now() - death, 2s * kSlower) << pid;
      std::this_thread::yield();
    }
  }
  // The folder stays behind, and the next run removes it.
  EXPECT_FALSE(folder_.empty());
  launcher_.reset();
  pids_ = {};
  start("finish");
  expect_end(ExitCode::kOk, "");
}

TEST_F(LaunchMultiProcess, AProgramThatCannotBeStartedIsAStartUpFailure) {
  LaunchOptions options;
  options.command = {"/nonexistent/program"};
  start("", -1, options);
  expect_end(ExitCode::kStartup,
             HasSubstr("cannot start rank 0: /nonexistent/program: No such file or directory"));
}

TEST_F(LaunchMultiProcess, LinesOfRanksAreWholeAndNamed) {
  int err[2];
  ASSERT_EQ(::pipe(err), 0);
  const int before = ::dup(STDERR_FILENO);
  ::dup2(err[1], STDERR_FILENO);
  start("lines");
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  ::close(err[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = ::read(err[0], buffer, sizeof buffer)) > 0;) text.append(buffer, n);
  ::close(err[0]);
  expect_end(ExitCode::kOk, "");
  std::istringstream lines(text);
  std::array<int, 3> next{};
  int unfinished = 0;
  for (std::string line; std::getline(lines, line);) {
    const int rank = line.size() > 6 ? line[6] - '0' : -1;
    ASSERT_TRUE(rank >= 0 && rank < 3) << line;
    if (line == fmt::format("[rank {}] no end", rank)) {
      ++unfinished;
      continue;
    }
    ASSERT_EQ(line, fmt::format("[rank {}] line {} of {}", rank, next[rank]++, rank));
  }
  EXPECT_EQ(next, (std::array{200, 200, 200}));
  EXPECT_EQ(unfinished, 3);
}

}  // namespace
}  // namespace stagecraft
