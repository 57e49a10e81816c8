// The program `pipetrain` as its users run it: real processes over sockets, the tiny model, made
// pictures.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "models/config/model_config.h"
#include "models/network/build.h"
#include "partitioner/plan/measured.h"
#include "partitioner/plan/plan.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"
#include "tests/support/running_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/traced_steps.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Pictures, vocabulary and the cache are made once for all tests.
class PipetrainMultiProcess : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    shared_ = std::make_unique<TempFolder>();
    must_run(python_command("tools/make_fill50k.py", {data(), "--count", "12", "--size", "64"}));
    must_run(python_command("tools/make_clip_vocab.py", {tokenizer()}));
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::string data() { return shared_->file("data"); }
  static std::string tokenizer() { return shared_->file("tokenizer"); }

  struct Split {
    int stages, batch, micro_batch;
    std::string flags;
  };
  std::string plan_for(const Split& split) {
    const std::string plan =
        folder_.file(fmt::format("plan_{}_{}.yaml", split.stages, split.batch));
    EXPECT_EQ(
        shell(fmt::format(
            "{}/partition --config {}train/tiny_demo.yaml --cluster {}clusters/local_cpu_4.yaml "
            "--width 64 --height 128 --stages {} --batch {} --micro-batch {} {} -o {} >/dev/null",
            STAGECRAFT_BIN_DIR, kConfigs, kConfigs, split.stages, split.batch, split.micro_batch,
            split.flags, plan)),
        0);
    return plan;
  }
  std::vector<std::string> command(const std::string& plan, const std::string& out, int steps) {
    return {STAGECRAFT_BIN_DIR "/pipetrain",
            "--plan",
            plan,
            "--config",
            kConfigs + "train/tiny_demo.yaml",
            "--init-random",
            "1",
            "--tokenizer",
            tokenizer(),
            "--data",
            data(),
            "--out",
            out,
            "--steps",
            std::to_string(steps)};
  }
  int train(const std::string& plan, const std::string& out, int steps) {
    RunningProgram run(command(plan, out, steps), folder_.file("errors"));
    const int code = run.wait(std::chrono::seconds(120));
    EXPECT_EQ(code, 0) << run.errors();
    return code;
  }

  void expect_equal_to_one_process(int batch, int micro_batch) {
    const std::string reference = folder_.file("reference");
    train(plan_for({1, batch, micro_batch, ""}), reference, 3);
    ASSERT_THAT(numbers_of(reference), HasSubstr("\"step\":2"));
    for (const int stages : {2, 3, 4}) {
      const std::string out = folder_.file(fmt::format("out_{}", stages));
      train(plan_for({stages, batch, micro_batch, ""}), out, 3);
      EXPECT_EQ(numbers_of(out), numbers_of(reference)) << stages << " stages";
      EXPECT_EQ(weights_of(out), weights_of(reference)) << stages << " stages";
    }
  }

  // A training that has made its first step.
  std::unique_ptr<RunningProgram> start_long_training(const std::string& plan,
                                                      const std::string& out) {
    auto run = std::make_unique<RunningProgram>(command(plan, out, 100000), folder_.file("errors"));
    const auto end = Clock::now() + std::chrono::seconds(60);
    const auto has_stepped = [&] {
      return fs::exists(out + "/metrics.jsonl") && !fs::is_empty(out + "/metrics.jsonl");
    };
    while (!has_stepped() && Clock::now() < end) ::usleep(5000);
    EXPECT_TRUE(has_stepped()) << run->errors();
    return run;
  }

  static void expect_gone(const std::vector<pid_t>& processes) {
    for (const pid_t pid : processes)
      EXPECT_NE(::kill(pid, 0), 0) << "process " << pid << " is left";
  }

  TempFolder folder_;
  static std::unique_ptr<TempFolder> shared_;
};
std::unique_ptr<TempFolder> PipetrainMultiProcess::shared_;

TEST_F(PipetrainMultiProcess, TwoUnevenMicroBatchesEqualOneProcessBitwise) {
  expect_equal_to_one_process(3, 2);
}

TEST_F(PipetrainMultiProcess, FiveMicroBatchesEqualOneProcessBitwise) {
  expect_equal_to_one_process(5, 1);
}

TEST_F(PipetrainMultiProcess, OnlyTheRankThatReadsHintsHoldsThePictureDecoder) {
  const auto run = start_long_training(plan_for({2, 2, 1, ""}), folder_.file("out"));
  const auto maps = [&](int rank) {
    return text_of(fmt::format("/proc/{}/maps", run->rank(rank)));
  };
  EXPECT_THAT(maps(0), HasSubstr("libopencv_imgcodecs"));
  EXPECT_THAT(maps(1), AllOf(HasSubstr("libtorch_cpu"), Not(HasSubstr("libopencv"))));
}

TEST_F(PipetrainMultiProcess, AMissingPictureDecoderIsNoFaultOfTheData) {
  const std::string alone = folder_.file("pipetrain");
  fs::copy_file(STAGECRAFT_BIN_DIR "/pipetrain", alone);
  auto arguments = command(plan_for({1, 1, 1, ""}), folder_.file("out"), 1);
  arguments.front() = alone;
  arguments.insert(arguments.end(), {"--cache", folder_.file("cache")});
  RunningProgram run(arguments, folder_.file("errors"));
  EXPECT_EQ(run.wait(std::chrono::seconds(60)), 8);
  EXPECT_THAT(run.errors(), HasSubstr("cannot open the picture decoder"));
}

TEST_F(PipetrainMultiProcess, MeasuredMemoryAgreesWithThePrediction) {
  const std::string path = plan_for({2, 2, 1, ""}), out = folder_.file("out");
  train(path, out, 2);
  const Plan plan = read_plan(path);
  const Measured measured = read_measured(out + "/measured.json");
  ASSERT_EQ(measured.ranks.size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    SCOPED_TRACE(r);
    const RankMemory &predicted = plan.ranks[r].memory, &used = measured.ranks[r].memory;
    for (const MemoryLine line :
         {MemoryLine::kWeights, MemoryLine::kGradients, MemoryLine::kOptimizer}) {
      EXPECT_EQ(used[line], predicted[line]) << to_string(line);
    }
    const double ratio = predicted.without_base().mib() / measured.ranks[r].peak_allocator.mib();
    EXPECT_GT(ratio, 0.98);
    EXPECT_LT(ratio, 1.10);
    EXPECT_GT(measured.ranks[r].peak_rss, measured.ranks[r].base_rss);
  }
  EXPECT_EQ(shell(fmt::format("{}/partition report {} --measured {}/measured.json >/dev/null",
                              STAGECRAFT_BIN_DIR, path, out)),
            0);
  // The copy beside the results can be read where it is.
  EXPECT_EQ(
      shell(fmt::format("{}/partition verify {}/plan.yaml >/dev/null", STAGECRAFT_BIN_DIR, out)),
      0);
}

TEST_F(PipetrainMultiProcess, ATraceShowsThePlannedOrderOnOneClock) {
  const std::string path = plan_for({3, 5, 2, ""}), trace = folder_.file("trace.json");
  auto with = command(path, folder_.file("out"), 2);
  with.insert(with.end(), {"--trace", trace});
  RunningProgram run(with, folder_.file("errors"));
  ASSERT_EQ(run.wait(std::chrono::seconds(60)), 0) << run.errors();
  expect_trace_of_plan(trace, path);
}

TEST_F(PipetrainMultiProcess, ATraceIsNeverWrittenOverThePlan) {
  const std::string plan = plan_for({1, 1, 1, ""}), before = text_of(plan);
  auto with = command(plan, folder_.file("out"), 1);
  with.insert(with.end(), {"--trace", plan});
  RunningProgram run(with, folder_.file("errors"));
  EXPECT_EQ(run.wait(std::chrono::seconds(60)), 2);
  EXPECT_THAT(run.errors(), HasSubstr("that is the plan"));
  EXPECT_EQ(text_of(plan), before);
}

TEST_F(PipetrainMultiProcess, TrainsAHandWrittenPlanWithTwoStagesOnEachOfTwoRanks) {
  const std::string reference = folder_.file("reference");
  train(plan_for({1, 2, 1, ""}), reference, 2);
  const std::string planned = plan_for({4, 2, 1, ""});
  Plan plan = read_plan(planned);
  for (size_t s = 0; s < 4; ++s) plan.stages[s].rank = static_cast<int>(s % 2);
  plan.schedule = "explicit";
  plan.order = {{"F0.0", "F0.1", "F2.0", "F2.1", "B2.0", "B2.1", "B0.0", "B0.1", "step"},
                {"F1.0", "F1.1", "F3.0", "B3.0", "F3.1", "B3.1", "B1.0", "B1.1", "step"}};
  plan.ranks.clear();
  plan.messages.clear();
  const std::string path = folder_.file("by_hand.yaml"), out = folder_.file("out");
  const ModelConfig model = read_model_config(plan.train.model);
  write_plan(plan,
             build_training_graph(model, plan.train.width, plan.train.height, plan.train.trainable,
                                  plan.train.precision),
             path);
  train(path, out, 2);
  EXPECT_EQ(numbers_of(out), numbers_of(reference));
  EXPECT_EQ(weights_of(out), weights_of(reference));
}

TEST_F(PipetrainMultiProcess, AKilledRankEndsTheOthersWithinTwoSecondsAndIsNamed) {
  const std::string plan = plan_for({4, 4, 1, ""});
  for (const int victim : {0, 2, 3}) {
    const std::string out = folder_.file(fmt::format("victim_{}", victim));
    const auto run = start_long_training(plan, out);
    const std::vector<pid_t> ranks = run->children();
    const pid_t pid = run->rank(victim);
    ASSERT_GT(pid, 0);
    ::kill(pid, SIGKILL);
    EXPECT_EQ(run->wait(std::chrono::seconds(2)), 9);
    EXPECT_THAT(run->errors(), HasSubstr(fmt::format("rank {} (stage {}) was killed by signal 9",
                                                     victim, victim)));
    expect_gone(ranks);
  }
}

TEST_F(PipetrainMultiProcess, InterruptSavesWhatIsTrainedAndLeavesNoProcess) {
  const std::string out = folder_.file("out");
  const auto run = start_long_training(plan_for({3, 3, 1, ""}), out);
  const std::vector<pid_t> ranks = run->children();
  ::kill(run->pid(), SIGINT);
  EXPECT_EQ(run->wait(std::chrono::seconds(60)), 130) << run->errors();
  expect_gone(ranks);
  EXPECT_TRUE(fs::exists(out + "/controlnet/config.json"));
}

TEST_F(PipetrainMultiProcess, TheUNetIsSavedWhereItTrains) {
  const std::string out = folder_.file("out");
  train(plan_for({2, 2, 1, "--what unet"}), out, 1);
  EXPECT_TRUE(fs::exists(out + "/unet/config.json"));
  EXPECT_FALSE(fs::exists(out + "/controlnet"));
}

TEST_F(PipetrainMultiProcess, RefusesAFolderWithTrainedWeights) {
  const std::string plan = plan_for({1, 1, 1, ""}), out = folder_.file("out");
  train(plan, out, 1);
  RunningProgram again(command(plan, out, 1), folder_.file("errors"));
  EXPECT_EQ(again.wait(std::chrono::seconds(60)), 12);
  EXPECT_THAT(again.errors(), HasSubstr("holds trained weights already"));
}

TEST_F(PipetrainMultiProcess, RefusesAnEmptyOutputAndAnOddLearningRate) {
  const std::string plan = plan_for({1, 1, 1, ""});
  for (const std::string& flags : {std::string("--out ''"), "--lr nan --out " + folder_.file("out"),
                                   "--lr 1e30 --out " + folder_.file("out")}) {
    EXPECT_EQ(shell(fmt::format(
                  "{}/pipetrain --plan {} --init-random 1 --tokenizer {} --data {} {} 2>/dev/null",
                  STAGECRAFT_BIN_DIR, plan, tokenizer(), data(), flags)),
              2)
        << flags;
  }
}

TEST_F(PipetrainMultiProcess, AMissingFolderIsNamedWithItsFlag) {
  const std::string plan = plan_for({1, 1, 1, ""}), nowhere = folder_.file("nowhere");
  for (const auto& [flag, value, what] :
       std::vector<std::array<std::string, 3>>{{"--data", nowhere, "no such folder"},
                                               {"--data", folder_.path(), "no prompt.json in it"},
                                               {"--tokenizer", nowhere, "no such folder"},
                                               {"--weights", nowhere, "no such folder"}}) {
    auto with = command(plan, folder_.file("out"), 1);
    const auto given = std::find(with.begin(), with.end(), flag);
    if (given != with.end()) {
      *(given + 1) = value;
    } else {  // instead of --init-random
      const auto random = std::find(with.begin(), with.end(), "--init-random");
      *random = flag;
      *(random + 1) = value;
    }
    RunningProgram run(with, folder_.file("errors"));
    EXPECT_EQ(run.wait(std::chrono::seconds(60)), 7);
    EXPECT_EQ(run.errors(), fmt::format("{} {}: {}\n", flag, value, what));
    fs::remove(folder_.file("errors"));
  }
}

TEST_F(PipetrainMultiProcess, TooManyThreadsForTheCoresAreWarnedAbout) {
  auto with = command(plan_for({1, 1, 1, ""}), folder_.file("out"), 1);
  with.insert(with.end(), {"--threads", "1024"});
  // Stops before a thread starts: the cache's folder is a file's child.
  with.insert(with.end(), {"--cache", folder_.write("file", "") + "/cache"});
  RunningProgram run(with, folder_.file("errors"));
  EXPECT_EQ(run.wait(std::chrono::seconds(60)), 7);
  EXPECT_THAT(run.errors(), HasSubstr("warning: 1 ranks with 1024 threads each on "));
}

TEST_F(PipetrainMultiProcess, AClosedOutputEndsNoTraining) {
  const std::string out = folder_.file("out");
  EXPECT_EQ(
      shell(fmt::format(
          "{}/pipetrain --plan {} --init-random 1 --tokenizer {} --data {} --out {} --steps 1 "
          ">&- 2>&-",
          STAGECRAFT_BIN_DIR, plan_for({2, 2, 1, ""}), tokenizer(), data(), out)),
      0);
  EXPECT_TRUE(fs::exists(out + "/controlnet/config.json"));
  EXPECT_EQ(fs::file_size(out + "/.lock"), 0u);
}

TEST_F(PipetrainMultiProcess, NamesAMissingPictureWithFileAndLine) {
  const std::string copy = folder_.file("data");
  fs::copy(data(), copy, fs::copy_options::recursive);
  fs::remove_all(copy + "/.stagecraft_cache");
  std::string first;
  for (const auto& entry : fs::recursive_directory_iterator(copy + "/target"))
    first = entry.path().string();
  ASSERT_FALSE(first.empty());
  fs::remove(first);
  auto with = command(plan_for({2, 2, 1, ""}), folder_.file("out"), 1);
  *(std::find(with.begin(), with.end(), data())) = copy;
  RunningProgram run(with, folder_.file("errors"));
  EXPECT_EQ(run.wait(std::chrono::seconds(60)), 5);
  EXPECT_THAT(run.errors(), HasSubstr("prompt.json:"));
}

}  // namespace
}  // namespace stagecraft
