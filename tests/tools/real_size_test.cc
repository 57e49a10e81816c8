// SD 1.5 ControlNet at its real size: planned from shapes alone, trained in four processes and in
// one. Minutes, and about 14 GiB.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "partitioner/plan/measured.h"
#include "partitioner/plan/plan.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

// 256 px, batch 4 as 4 micro-batches, two optimizer steps from seeded random weights.
class RealSizeSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    must_run(python_command("tools/make_photos.py",
                            {folder_.file("data"), "--size", "256", "--crops", "1"}));
    must_run(python_command("tools/make_clip_vocab.py", {folder_.file("tokenizer")}));
  }

  // Plans for `stages` processes and trains; returns the output folder.
  std::string train(int stages, const std::string& partition_flags) {
    const std::string out = folder_.file(fmt::format("out_{}", stages));
    EXPECT_EQ(shell(fmt::format("{}/partition --config {} --precision fp32 --width 256 "
                                "--height 256 --batch 4 --micro-batch 1 --stages {} "
                                "--cluster {}/configs/clusters/local_cpu_4.yaml {} -o {} "
                                ">/dev/null",
                                STAGECRAFT_BIN_DIR, kConfig, stages, STAGECRAFT_SOURCE_DIR,
                                partition_flags, plan(stages))),
              0);
    EXPECT_EQ(shell(fmt::format("{}/pipetrain --plan {} --config {} --init-random 1 --tokenizer "
                                "{} --data {} --out {} --steps 2 --timeout 1800",
                                STAGECRAFT_BIN_DIR, plan(stages), kConfig,
                                folder_.file("tokenizer"), folder_.file("data"), out)),
              0);
    fmt::print("{} processes:\n", stages);
    fmt::print("{}", text_of(out + "/metrics.jsonl"));
    return out;
  }

  std::string plan(int stages) const { return folder_.file(fmt::format("plan_{}.yaml", stages)); }

  void expect_memory_as_predicted(int stages, const std::string& out) {
    const Plan planned = read_plan(plan(stages));
    const Measured measured = read_measured(out + "/measured.json");
    ASSERT_EQ(measured.ranks.size(), planned.ranks.size());
    for (size_t r = 0; r < measured.ranks.size(); ++r) {
      const double predicted = planned.ranks[r].memory.without_base().mib();
      const double used = measured.ranks[r].peak_allocator.mib();
      fmt::print("rank {}: predicted {:.1f} MiB, measured {:.1f} MiB, ratio {:.3f}\n", r, predicted,
                 used, predicted / used);
      EXPECT_GT(predicted / used, 0.98) << "rank " << r;
      EXPECT_LT(predicted / used, 1.10) << "rank " << r;
    }
  }

  static constexpr const char* kConfig =
      STAGECRAFT_SOURCE_DIR "/configs/train/sd15_controlnet.yaml";
  TempFolder folder_;
};

TEST_F(RealSizeSlow, FourProcessesStayWithinThePredictedMemoryAndEqualOneProcessBitwise) {
  const std::string four = train(4, "");
  expect_memory_as_predicted(4, four);
  const std::string one = train(1, "--memory-cap 16384");
  expect_memory_as_predicted(1, one);
  EXPECT_EQ(numbers_of(four), numbers_of(one));
  EXPECT_EQ(weights_of(four), weights_of(one));
}

}  // namespace
}  // namespace stagecraft
