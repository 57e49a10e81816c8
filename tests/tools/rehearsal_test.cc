// `pipetrain --rehearse` as its users run it: real processes over sockets, without weights or data.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "partitioner/plan/measured.h"
#include "tests/support/programs.h"
#include "tests/support/running_program.h"
#include "tests/support/temp_folder.h"
#include "tests/support/traced_steps.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

class RehearsalMultiProcess : public ::testing::Test {
 protected:
  std::string plan_for(int stages) {
    const std::string plan = folder_.file(fmt::format("plan_{}.yaml", stages));
    must_run(fmt::format(
        "{}/partition --config {}train/tiny_demo.yaml --cluster {} --width 64 --height 128 "
        "--stages {} --batch 5 --micro-batch 2 -o {}",
        STAGECRAFT_BIN_DIR, kConfigs, cluster(), stages, plan));
    return plan;
  }
  static std::string cluster() { return kConfigs + "clusters/local_cpu_4.yaml"; }
  static std::string rehearse(const std::string& plan, const std::string& flags) {
    return fmt::format("{}/pipetrain --rehearse {} {}", STAGECRAFT_BIN_DIR, plan, flags);
  }
  // A rehearsal that has been under way for some steps, to be ended by the test.
  std::unique_ptr<RunningProgram> start_long(const std::string& plan) {
    auto run = std::make_unique<RunningProgram>(
        std::vector<std::string>{STAGECRAFT_BIN_DIR "/pipetrain", "--rehearse", plan, "--cluster",
                                 cluster(), "--steps", "1000000", "--scale", "0.1"},
        folder_.file("errors"));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    const auto in_step = [&] {  // the I/O threads are there once all are connected
      const pid_t last = run->rank(2);
      std::error_code none;
      const std::filesystem::path tasks = fmt::format("/proc/{}/task", last);
      return last > 0 && std::distance(std::filesystem::directory_iterator(tasks, none), {}) > 1;
    };
    while (!in_step() && std::chrono::steady_clock::now() < end) ::usleep(5000);
    return run;
  }
  TempFolder folder_;
};

TEST_F(RehearsalMultiProcess, HoldsThePlannedBytesAndKeepsThePlannedOrder) {
  for (const int stages : {2, 4}) {
    SCOPED_TRACE(stages);
    const std::string plan = plan_for(stages), trace = folder_.file("trace.json"),
                      measured = folder_.file("measured.json");
    const std::string out =
        must_run(rehearse(plan, fmt::format("--cluster {} --steps 2 --scale 0.1 --json --trace {} "
                                            "--measured {}",
                                            cluster(), trace, measured)));
    const nlohmann::json result = nlohmann::json::parse(out);
    EXPECT_EQ(result["code"], 0);
    EXPECT_EQ(result["steps"], 2);
    ASSERT_EQ(result["ranks"].size(), static_cast<size_t>(stages));
    for (const nlohmann::json& rank : result["ranks"]) {
      EXPECT_EQ(rank["held_bytes"], rank["held_planned_bytes"]) << rank;
      EXPECT_GT(rank["peak_rss_bytes"], rank["held_bytes"]) << rank;
    }
    for (const nlohmann::json& link : result["links"]) {
      EXPECT_EQ(link["messages"].get<int>() % (2 * 3), 0) << link;  // steps x micro-batches
    }
    expect_trace_of_plan(trace, plan);
    EXPECT_EQ(read_measured(measured).plan_hash, result["plan_hash"].get<std::string>());
    EXPECT_THAT(must_run(fmt::format("{}/partition report {} --measured {}", STAGECRAFT_BIN_DIR,
                                     plan, measured)),
                HasSubstr("measured"));
  }
}

TEST_F(RehearsalMultiProcess, PrintsATableOfRanksAndLinks) {
  const std::string out =
      must_run(rehearse(plan_for(2), "--cluster " + cluster() + " --steps 1 --scale 0.01"));
  EXPECT_THAT(out, HasSubstr("1 steps after one that does not count"));
  EXPECT_THAT(out, HasSubstr("\n0 > 1 "));
  EXPECT_THAT(out, HasSubstr("/ simulated with the links seen here"));
}

TEST_F(RehearsalMultiProcess, AKilledRankEndsTheOthersAndIsNamed) {
  const auto run = start_long(plan_for(4));
  const std::vector<pid_t> ranks = run->children();
  ASSERT_GT(run->rank(2), 0);
  ::kill(run->rank(2), SIGKILL);
  EXPECT_EQ(run->wait(std::chrono::seconds(10)), 9);
  EXPECT_THAT(run->errors(), HasSubstr("rank 2 (stage 2) was killed by signal 9"));
  for (const pid_t pid : ranks) EXPECT_NE(::kill(pid, 0), 0) << pid;
}

TEST_F(RehearsalMultiProcess, AnInterruptEndsItAfterTheStep) {
  const auto run = start_long(plan_for(4));
  ::kill(run->pid(), SIGINT);
  EXPECT_EQ(run->wait(std::chrono::seconds(60)), 130) << run->errors();
}

TEST_F(RehearsalMultiProcess, BadPlansAndFlagsAreRefused) {
  const std::string plan = plan_for(2), spoilt = folder_.write("spoilt.yaml", "stages: 7\n");
  const auto refused = [](const std::string& command, int code, const std::string& text) {
    const ProgramEnd end = run_program(command);
    EXPECT_EQ(end.code, code) << command << "\n" << end.err;
    EXPECT_THAT(end.err, HasSubstr(text));
  };
  refused(rehearse(folder_.file("nowhere.yaml"), "--cluster " + cluster()), 7, "nowhere.yaml");
  refused(rehearse(spoilt, "--cluster " + cluster()), 3, "spoilt.yaml:");
  refused(rehearse(plan_for(4), "--cluster " + kConfigs + "clusters/local_cpu_2.yaml"), 4,
          "the plan uses 4 ranks, cluster local_cpu_2 has 2 devices");
  refused(rehearse(plan, "--cluster " + cluster() + " --data somewhere"), 2, "--data");
  refused(rehearse(plan, "--scale-memory 2"), 2, "--scale-memory");
  refused(rehearse(plan, "--trace " + plan), 2, "that is the plan");
  const std::string elsewhere = folder_.write("elsewhere.yaml", [&] {
    std::string text = text_of(plan);
    return text.replace(text.find("local_cpu_4"), std::string("local_cpu_4").size(), "nobody_s");
  }());
  refused(rehearse(elsewhere, ""), 2, "give --cluster FILE");
}

}  // namespace
}  // namespace stagecraft
