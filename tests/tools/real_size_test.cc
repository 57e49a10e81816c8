// SD 1.5 ControlNet at its real size: planned from shapes alone, trained in four processes. Minutes
// and about 14 GiB.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <fstream>

#include "partitioner/plan/measured.h"
#include "partitioner/plan/plan.h"
#include "tests/support/programs.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

TEST(RealSizeSlow, FourProcessesTrainTheRealControlNetWithinThePredictedMemory) {
  const TempFolder folder;
  const std::string python = STAGECRAFT_PYTHON, source = STAGECRAFT_SOURCE_DIR,
                    bin = STAGECRAFT_BIN_DIR;
  const std::string config = source + "/configs/train/sd15_controlnet.yaml",
                    plan = folder.file("plan.yaml");
  ASSERT_EQ(shell(fmt::format("{} {}/tools/make_photos.py {} --size 256 --crops 1", python, source,
                              folder.file("data"))),
            0);
  ASSERT_EQ(shell(fmt::format("{} {}/tools/make_clip_vocab.py {}", python, source,
                              folder.file("tokenizer"))),
            0);
  ASSERT_EQ(shell(fmt::format("{}/partition --config {} --precision fp32 --width 256 --height 256 "
                              "--batch 4 --micro-batch 1 "
                              "--cluster {}/configs/clusters/local_cpu_4.yaml -o {} >/dev/null",
                              bin, config, source, plan)),
            0);
  ASSERT_EQ(
      shell(fmt::format(
          "{}/pipetrain --plan {} --config {} --init-random 1 --tokenizer {} --data {} --out {} "
          "--steps 2 --timeout 1800",
          bin, plan, config, folder.file("tokenizer"), folder.file("data"), folder.file("out"))),
      0);
  std::ifstream metrics(folder.file("out") + "/metrics.jsonl");
  for (std::string line; std::getline(metrics, line);) fmt::print("{}\n", line);
  const Plan planned = read_plan(plan);
  const Measured measured = read_measured(folder.file("out") + "/measured.json");
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

}  // namespace
}  // namespace stagecraft
