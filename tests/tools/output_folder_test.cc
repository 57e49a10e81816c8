// What --out held before a run, and what becomes of it.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/tools/audited_run.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class OutputFolderMultiProcess : public AuditedRun {
 protected:
  void SetUp() override {
    folder_.write("out/plan.yaml", "edited by hand");
    folder_.write("out/metrics.jsonl", "of an earlier run");
    folder_.write("out/measured.json", "{}");
  }
  std::string kept(const std::string& name) const { return text_of(folder_.file("out/" + name)); }
};

TEST_F(OutputFolderMultiProcess, WhatAnEarlierRunLeftIsSetAside) {
  const ProgramEnd trained = train(plan_for(2), "out", "--steps 1");
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_EQ(kept("plan.yaml.old"), "edited by hand");
  EXPECT_EQ(kept("metrics.jsonl.old"), "of an earlier run");
  EXPECT_EQ(kept("measured.json.old"), "{}");
  EXPECT_THAT(kept("metrics.jsonl"), HasSubstr("\"step\":0"));
}

TEST_F(OutputFolderMultiProcess, ARunThatIsRefusedTouchesNothing) {
  folder_.write("audit/old", "");
  const ProgramEnd refused =
      train(plan_for(2), "out", "--steps 1 --audit " + folder_.file("audit"));
  EXPECT_EQ(refused.code, 12);
  EXPECT_EQ(kept("plan.yaml"), "edited by hand");
  EXPECT_EQ(kept("metrics.jsonl"), "of an earlier run");
  EXPECT_EQ(kept("measured.json"), "{}");
}

TEST_F(OutputFolderMultiProcess, WeightsOfAnyFormatAreLeftAlone) {
  for (const char* name :
       {"diffusion_pytorch_model.fp16.safetensors", "diffusion_pytorch_model.bin"}) {
    const std::string file = folder_.write(std::string("out/controlnet/") + name, "w");
    const ProgramEnd refused = train(plan_for(2), "out", "--steps 1");
    EXPECT_EQ(refused.code, 12) << name;
    EXPECT_THAT(refused.err, HasSubstr("holds trained weights already"));
    fs::remove(file);
  }
}

TEST_F(OutputFolderMultiProcess, WhatCannotBeSetAsideIsNamed) {
  folder_.write("out/metrics.jsonl.old/in_the_way", "");
  const ProgramEnd refused = train(plan_for(1), "out", "--steps 1");
  EXPECT_EQ(refused.code, 7);
  EXPECT_THAT(refused.err, HasSubstr("cannot set metrics.jsonl aside"));
  EXPECT_EQ(kept("metrics.jsonl"), "of an earlier run");
}

TEST_F(OutputFolderMultiProcess, AnAuditThatCannotBeRedoneIsRefused) {
  const ProgramEnd refused = run_program(fmt::format(
      "{}/pipetrain --plan {} --init-random 1 --tokenizer {}/tokenizer --data {}/data --out {} "
      "--audit {}",
      STAGECRAFT_BIN_DIR, plan_for(1), weights(), inputs(), folder_.file("out"),
      folder_.file("audit")));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--audit needs --weights"));
}

TEST_F(OutputFolderMultiProcess, SeedsOutsideTheRangeAreRefused) {
  const std::string plan = plan_for(1);
  for (const char* seed : {"-1", "1e3", "9223372036854775808"}) {
    const ProgramEnd refused = train(plan, "out", fmt::format("--steps 1 --seed '{}'", seed));
    EXPECT_EQ(refused.code, 2) << seed;
    EXPECT_THAT(refused.err, HasSubstr("is not a whole number from 0 to 9223372036854775807"));
  }
}

}  // namespace
}  // namespace stagecraft
