// Checkpoints and --resume as their users meet them: real processes, the tiny model.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>

#include "tests/support/running_program.h"
#include "tests/tools/audited_run.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ResumeMultiProcess : public AuditedRun {
 protected:
  struct Run {
    int stages = 1, steps = 0;
    std::string flags{}, plan_flags{};
  };
  ProgramEnd start(const std::string& out, const Run& run) const {
    const std::string plan = plan_for(run.stages, run.plan_flags);
    return train(plan, out, fmt::format("--steps {} {}", run.steps, run.flags));
  }
  void must_train(const std::string& out, const Run& run) const {
    const ProgramEnd end = start(out, run);
    ASSERT_EQ(end.code, 0) << end.err;
  }
  std::string checkpoint(const std::string& out, int steps) const {
    return folder_.file(fmt::format("{}/checkpoints/step_{:08}", out, steps));
  }
  void expect_same_result(const std::string& out, const std::string& reference) const {
    EXPECT_EQ(numbers_of(folder_.file(out)), numbers_of(folder_.file(reference)));
    EXPECT_EQ(weights_of(folder_.file(out)), weights_of(folder_.file(reference)));
  }
  static void flip_a_bit(const std::string& path) {
    std::string content = text_of(path);
    content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 4);
    std::ofstream(path, std::ios::binary) << content;
  }
  // Of two ranks, with far more steps than a test waits for.
  std::unique_ptr<RunningProgram> start_long_training(const std::string& out,
                                                      int save_every) const {
    std::vector<std::string> command = {STAGECRAFT_BIN_DIR "/pipetrain"};
    for (const auto& [flag, value] :
         std::map<std::string, std::string>{{"--plan", plan_for(2)},
                                            {"--config", folder_.file("train.yaml")},
                                            {"--weights", weights()},
                                            {"--data", inputs() + "/data"},
                                            {"--out", folder_.file(out)},
                                            {"--steps", "100000"},
                                            {"--save-every", std::to_string(save_every)}}) {
      command.insert(command.end(), {flag, value});
    }
    return std::make_unique<RunningProgram>(command, folder_.file("errors"));
  }
  static void wait_for(const std::function<bool()>& holds) {
    const auto end = Clock::now() + std::chrono::seconds(60);
    while (!holds() && Clock::now() < end) ::usleep(2000);
    ASSERT_TRUE(holds());
  }
  // A file of a block that trains.
  static std::string a_file_of(const std::string& checkpoint) {
    return checkpoint + "/controlnet.conv_in.safetensors";
  }
};

TEST_F(ResumeMultiProcess, FourTwoThreeOneAndFourRanksEqualTheUninterruptedRunBitwise) {
  must_train("whole", {.stages = 1, .steps = 10, .flags = ""});
  for (const Run& part : std::vector<Run>{{4, 2, "", ""},
                                          {2, 4, "", "--schedule gpipe"},
                                          {3, 5, "", ""},
                                          {1, 7, "", ""},
                                          {4, 10, "", "--schedule 1f1b"}}) {
    must_train("parts", {part.stages, part.steps, "--resume auto", part.plan_flags});
    EXPECT_TRUE(fs::exists(checkpoint("parts", part.steps)));
  }
  expect_same_result("parts", "whole");
}

TEST_F(ResumeMultiProcess, SavingChangesNothingAndKeepsWhatIsAskedFor) {
  must_train("quiet", {.stages = 2, .steps = 6, .flags = ""});
  must_train("saving", {.stages = 2, .steps = 6, .flags = "--save-every 1 --keep-every 3"});
  expect_same_result("saving", "quiet");
  std::vector<std::string> kept;
  for (const auto& entry : fs::directory_iterator(folder_.file("saving/checkpoints"))) {
    kept.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(kept,
              ::testing::UnorderedElementsAre("step_00000003", "step_00000005", "step_00000006"));
  EXPECT_FALSE(fs::exists(folder_.file("quiet/checkpoints")));
}

TEST_F(ResumeMultiProcess, AfterSigtermTheRunGoesOnAsIfNothingHadHappened) {
  const std::string out = folder_.file("stopped");
  const auto run = start_long_training("stopped", 1000);
  wait_for(
      [&] { return fs::exists(out + "/metrics.jsonl") && !fs::is_empty(out + "/metrics.jsonl"); });
  ::kill(run->pid(), SIGTERM);
  ASSERT_EQ(run->wait(std::chrono::seconds(60)), 143) << run->errors();
  const std::string numbers = numbers_of(out);
  const auto done = static_cast<int>(std::count(numbers.begin(), numbers.end(), '\n'));
  ASSERT_TRUE(fs::exists(checkpoint("stopped", done))) << done;
  EXPECT_THAT(run->errors(), HasSubstr(fmt::format("go on from step {} with --resume", done)));
  must_train("stopped", {.stages = 2, .steps = done + 2, .flags = "--resume auto"});
  must_train("whole", {.stages = 2, .steps = done + 2, .flags = ""});
  expect_same_result("stopped", "whole");
}

TEST_F(ResumeMultiProcess, ASigusr1SavesAndTrainingGoesOn) {
  const std::string out = folder_.file("asked");
  const auto run = start_long_training("asked", 0);
  wait_for([&] { return fs::exists(out); });
  ::kill(run->pid(), SIGUSR1);  // too early for anything to be saved: no harm
  const auto steps_done = [&] {
    const std::string numbers = fs::exists(out + "/metrics.jsonl") ? numbers_of(out) : "";
    return static_cast<int>(std::count(numbers.begin(), numbers.end(), '\n'));
  };
  wait_for([&] { return steps_done() > 1; });
  ::kill(run->pid(), SIGUSR1);
  const auto saved = [&] {
    int newest = 0;
    for (int step = 1; step <= steps_done(); ++step)
      if (fs::exists(checkpoint("asked", step) + "/manifest.json")) newest = step;
    return newest;
  };
  wait_for([&] { return saved() > 1; });
  const int first = saved();
  wait_for([&] { return steps_done() > first + 2; });
  ::kill(run->rank(1), SIGUSR1);  // one rank asks, all save
  wait_for([&] { return saved() > first; });
  const int second = saved();
  ::kill(run->pid(), SIGKILL);
  run->wait(std::chrono::seconds(60));
  must_train("asked", {.stages = 2, .steps = second + 1, .flags = "--resume auto"});
  must_train("whole", {.stages = 2, .steps = second + 1, .flags = ""});
  expect_same_result("asked", "whole");
}

TEST_F(ResumeMultiProcess, AfterAKilledRankTheRunGoesOnAsIfNothingHadHappened) {
  const auto run = start_long_training("killed", 1);
  wait_for([&] { return fs::exists(checkpoint("killed", 2)); });
  ::kill(run->rank(1), SIGKILL);
  ASSERT_EQ(run->wait(std::chrono::seconds(60)), 9) << run->errors();
  int newest = 0;
  while (!fs::exists(checkpoint("killed", newest))) ASSERT_LT(++newest, 1000);
  while (fs::exists(checkpoint("killed", newest + 1))) ++newest;
  must_train("killed", {.stages = 2, .steps = newest + 2, .flags = "--resume auto"});
  must_train("whole", {.stages = 2, .steps = newest + 2, .flags = ""});
  expect_same_result("killed", "whole");
}

TEST_F(ResumeMultiProcess, ADamagedNewestFallsBackLoudlyToTheOneBefore) {
  must_train("whole", {.stages = 2, .steps = 5, .flags = ""});
  must_train("out", {.stages = 2, .steps = 4, .flags = "--save-every 2"});
  flip_a_bit(a_file_of(checkpoint("out", 4)));
  const ProgramEnd end = start("out", {.stages = 2, .steps = 5, .flags = "--resume auto"});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.err, AllOf(HasSubstr("warning: checkpoint skipped: "),
                             HasSubstr(a_file_of(checkpoint("out", 4))), HasSubstr("SHA-256")));
  EXPECT_THAT(end.out, HasSubstr("step_00000002, 2 of 5 steps done"));
  EXPECT_TRUE(fs::exists(checkpoint("out", 4) + ".old"));
  expect_same_result("out", "whole");
}

TEST_F(ResumeMultiProcess, WithoutAWholeOneNothingStarts) {
  must_train("out", {.stages = 1, .steps = 2, .flags = "--save-every 1"});
  flip_a_bit(a_file_of(checkpoint("out", 1)));
  flip_a_bit(checkpoint("out", 2) + "/manifest.json");
  const ProgramEnd all = start("out", {.stages = 1, .steps = 3, .flags = "--resume auto"});
  EXPECT_EQ(all.code, 6);
  EXPECT_THAT(all.err, AllOf(HasSubstr("none of the 2 checkpoints is whole"),
                             HasSubstr("step_00000002/manifest.json: "),
                             HasSubstr(a_file_of(checkpoint("out", 1)))));
  EXPECT_EQ(
      start("out", {.stages = 1, .steps = 3, .flags = "--resume " + checkpoint("out", 1)}).code, 6);
  EXPECT_TRUE(fs::exists(checkpoint("out", 2)));
}

TEST_F(ResumeMultiProcess, WhatMustBeEqualIsNamedWithBothValuesAndWhatMayDifferIsNoted) {
  must_train("out", {.stages = 1, .steps = 1, .flags = "--save-every 1"});
  const ProgramEnd batch =
      start("out", {.stages = 1, .steps = 2, .flags = "--resume auto", .plan_flags = "--batch 4"});
  EXPECT_EQ(batch.code, 4);
  EXPECT_THAT(batch.err, HasSubstr("saved with batch 3 (here 4)"));
  const ProgramEnd seed =
      start("out", {.stages = 1, .steps = 2, .flags = "--seed 9 --resume auto"});
  EXPECT_EQ(seed.code, 4);
  EXPECT_THAT(seed.err, HasSubstr("seed 42 (here 9)"));
  const ProgramEnd rate =
      start("out", {.stages = 1, .steps = 2, .flags = "--lr 0.001 --resume auto"});
  EXPECT_EQ(rate.code, 0) << rate.err;
  EXPECT_THAT(rate.out, HasSubstr("saved with learning rate 1e-05 (here 0.001)"));
  const ProgramEnd fewer = start("out", {.stages = 1, .steps = 1, .flags = "--resume auto"});
  EXPECT_EQ(fewer.code, 4);
  EXPECT_THAT(fewer.err, HasSubstr("2 steps are done, --steps says 1"));
}

TEST_F(ResumeMultiProcess, WithoutCheckpointsItStartsFromTheBeginningAndSaysSo) {
  fs::create_directories(folder_.file("out/checkpoints/.step_00000005.partial"));
  const ProgramEnd end = start("out", {.stages = 1, .steps = 1, .flags = "--resume auto"});
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_THAT(end.out, HasSubstr("training starts from the beginning"));
  EXPECT_FALSE(fs::exists(folder_.file("out/checkpoints/.step_00000005.partial")));
}

TEST_F(ResumeMultiProcess, AFinishedRunIsResumedToTheSameWeightsAndNotOverwrittenUnasked) {
  must_train("out", {.stages = 2, .steps = 2, .flags = "--save-every 1"});
  const std::string weights = weights_of(folder_.file("out"));
  fs::remove_all(folder_.file("out/controlnet"));  // as if killed before they were saved
  must_train("out", {.stages = 1, .steps = 2, .flags = "--resume auto"});
  EXPECT_EQ(weights_of(folder_.file("out")), weights);
  fs::remove_all(folder_.file("out/controlnet"));
  const ProgramEnd unasked = start("out", {.stages = 1, .steps = 2, .flags = ""});
  EXPECT_EQ(unasked.code, 12);
  EXPECT_THAT(unasked.err,
              HasSubstr("holds checkpoints, the newest of step 2; go on with --resume"));
}

TEST_F(ResumeMultiProcess, AFullDiskEndsTheRunWithoutLosingTheCheckpointBefore) {
  must_train("out", {.stages = 2, .steps = 1, .flags = "--save-every 1"});
  const std::string plan = plan_for(2);
  // The larger blocks cannot be written; logs and progress pages can.
  const ProgramEnd full = run_program(
      "ulimit -f 2048; " + train_command(plan, "out", "--steps 9 --save-every 1 --resume auto"));
  EXPECT_EQ(full.code, 7) << full.err;
  EXPECT_THAT(full.err,
              AllOf(HasSubstr("/checkpoints/.step_0000000"), HasSubstr("File too large")));
  EXPECT_TRUE(fs::exists(checkpoint("out", 1)));
  must_train("out", {.stages = 1, .steps = 2, .flags = "--resume auto"});
}

TEST_F(ResumeMultiProcess, ADiskTooSmallForTheCheckpointsIsToldBeforeTheFirstStep) {
  for (const char* steps : {"100000000", "1099511627776"}) {
    const ProgramEnd end =
        train(plan_for(1), "out",
              fmt::format("--save-every 1 --keep-every 1 --keep-last 1 --steps {}", steps));
    EXPECT_EQ(end.code, 7) << end.err;
    EXPECT_THAT(end.err, AllOf(HasSubstr("of disk are needed"), HasSubstr("--keep-last")));
    EXPECT_THAT(end.out, Not(HasSubstr("step ")));
  }
}

TEST_F(ResumeMultiProcess, AnAuditIsNotResumed) {
  const ProgramEnd end = start(
      "out", {.stages = 1, .steps = 2, .flags = "--resume auto --audit " + folder_.file("audit")});
  EXPECT_EQ(end.code, 2);
  EXPECT_THAT(end.err, HasSubstr("--audit and --resume: give one of them"));
}

}  // namespace
}  // namespace stagecraft
