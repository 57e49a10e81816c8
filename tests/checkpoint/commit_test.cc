// A commit is all or nothing, whatever happens to the process or the disk.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <random>

#include "tests/checkpoint/made_checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<int64_t> steps_kept(const std::string& root) {
  std::vector<int64_t> steps;
  for (const FoundCheckpoint& found : list_checkpoints(root)) steps.push_back(found.steps);
  return steps;
}

class CheckpointCommit : public ::testing::Test {
 protected:
  void SetUp() override { prepare_checkpoints(root_); }
  // Exit code of a process that runs `body`; nothing of the test's own is left to it.
  static int in_a_process(const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body());
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  // Processes that commit one checkpoint after another, each going on from the newest and killed at
  // a random moment.
  void kill_at_random_moments(int kills) const;

  TempFolder folder_;
  const std::string root_ = folder_.file("out/checkpoints");
};
using CheckpointCommitSlow = CheckpointCommit;

void CheckpointCommit::kill_at_random_moments(int kills) const {
  constexpr size_t kValues = 20'000;
  std::mt19937_64 random(11);
  int64_t newest = 0, half_written = 0;
  for (int kill = 0; kill < kills; ++kill) {
    int report[2];
    ASSERT_EQ(::pipe(report), 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      prepare_checkpoints(root_);
      for (int64_t steps = newest + 1;; ++steps) {
        make_checkpoint(root_, steps, kValues);
        if (::write(report[1], &steps, sizeof(steps)) != sizeof(steps)) ::_exit(1);
        remove_old_checkpoints(root_, {.last = 2, .every = 0});
      }
    }
    ::close(report[1]);
    int64_t committed = 0;
    ASSERT_EQ(::read(report[0], &committed, sizeof(committed)), ssize_t{sizeof(committed)});
    ::usleep(static_cast<useconds_t>(random() % 30'000));  // the random moment
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    for (int64_t later = 0; ::read(report[0], &later, sizeof(later)) == sizeof(later);) {
      committed = later;
    }
    ::close(report[0]);
    for (const auto& entry : fs::directory_iterator(root_)) {
      half_written += entry.path().filename().string().front() == '.';
    }
    const auto found = list_checkpoints(root_);
    ASSERT_FALSE(found.empty());
    EXPECT_GE(found.front().steps, committed) << "after kill " << kill;
    for (const FoundCheckpoint& one : found) expect_made_checkpoint(one.folder, one.steps, kValues);
    newest = found.front().steps;
  }
  EXPECT_GT(half_written, 0) << "no kill came while a checkpoint was written or removed";
}

TEST_F(CheckpointCommit, TwentyKillsAtRandomMomentsLoseNothingCommitted) {
  kill_at_random_moments(20);
}

TEST_F(CheckpointCommitSlow, TwoHundredKillsAtRandomMomentsLoseNothingCommitted) {
  kill_at_random_moments(200);
}

TEST_F(CheckpointCommit, KeepsTheLastAndThoseOfEverySoManySteps) {
  for (int64_t steps = 10; steps <= 80; steps += 10) {
    make_checkpoint(root_, steps);
    remove_old_checkpoints(root_, {.last = 2, .every = 30});
  }
  EXPECT_EQ(steps_kept(root_), (std::vector<int64_t>{80, 70, 60, 30}));
  remove_old_checkpoints(root_, {.last = 1, .every = 0});
  EXPECT_EQ(steps_kept(root_), (std::vector<int64_t>{80}));
  expect_made_checkpoint(root_ + "/step_00000080", 80);
}

TEST_F(CheckpointCommit, AHalfWrittenOneIsNoneAndGoesAtTheNextStart) {
  make_checkpoint(root_, 3);
  PartWriter writer;
  start_writing(writer, root_, 4);
  writer.wait();
  fs::create_directory(root_ + "/.step_00000001.removed");
  fs::create_directory(root_ + "/.elsewhere");
  EXPECT_TRUE(fs::exists(root_ + "/.step_00000004.partial"));
  EXPECT_EQ(steps_kept(root_), (std::vector<int64_t>{3}));
  prepare_checkpoints(root_);
  EXPECT_FALSE(fs::exists(root_ + "/.step_00000004.partial"));
  EXPECT_FALSE(fs::exists(root_ + "/.step_00000001.removed"));
  EXPECT_TRUE(fs::exists(root_ + "/.elsewhere"));
}

TEST_F(CheckpointCommit, OnlyNamesOfCheckpointsAreListed) {
  for (const char* name : {"step_7", "step_00000007.old", "step_0000000x", "step_000000007"}) {
    fs::create_directory(root_ + "/" + name);
  }
  make_checkpoint(root_, 123456789);
  EXPECT_EQ(steps_kept(root_), (std::vector<int64_t>{123456789}));
}

TEST_F(CheckpointCommit, OneThatIsSetAsideIsNotListed) {
  make_checkpoint(root_, 3);
  set_checkpoint_aside(list_checkpoints(root_).front());
  EXPECT_TRUE(steps_kept(root_).empty());
  make_checkpoint(root_, 3);
  set_checkpoint_aside(list_checkpoints(root_).front());
  expect_made_checkpoint(root_ + "/step_00000003.old", 3);
}

TEST_F(CheckpointCommit, AFullDiskIsToldWithTheFileAndLosesNoEarlierCheckpoint) {
  make_checkpoint(root_, 1);
  const int code = in_a_process([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 1000, .rlim_max = 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    PartWriter writer;
    start_writing(writer, root_, 2);
    try {
      while (!writer.done()) ::usleep(1000);
    } catch (const InputError& error) {
      const std::string text = error.what();
      const bool named = text.find(".step_00000002.partial/net.a.safetensors") != text.npos &&
                         text.find("File too large") != text.npos;
      return error.code() == ExitCode::kIo && named && !writer.under_way() ? 0 : 2;
    }
    return 1;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(steps_kept(root_), (std::vector<int64_t>{1}));
  expect_made_checkpoint(root_ + "/step_00000001", 1);
}

TEST_F(CheckpointCommit, AFolderThatIsGoneIsAnErrorOfTheDisk) {
  fs::remove_all(root_);
  PartWriter writer;
  start_writing(writer, root_, 2);
  const CaughtError error = caught([&] { writer.wait(); });
  EXPECT_EQ(error.code, ExitCode::kIo);
  EXPECT_THAT(error.message, HasSubstr(".step_00000002.partial: cannot make the folder"));
  const std::string file = folder_.write("file", "");
  EXPECT_EQ(caught([&] { prepare_checkpoints(file + "/checkpoints"); }).code, ExitCode::kIo);
}

TEST_F(CheckpointCommit, AWriterThatGoesWhileItWritesLeavesNoCheckpoint) {
  {
    PartWriter writer;
    start_writing(writer, root_, 2);
  }
  EXPECT_TRUE(steps_kept(root_).empty());
}

}  // namespace
}  // namespace stagecraft
