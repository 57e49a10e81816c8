// pipetrain --audit and tools/audit.py: the product against diffusers and torch.optim.AdamW.
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/support/python.h"
#include "tests/tools/audited_run.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class AuditMultiProcess : public AuditedRun {
 protected:
  std::string audited(const std::string& steps) const {
    return fmt::format("--audit {} --audit-steps {}", folder_.file("audit"), steps);
  }

  // 20 steps in `stages` processes, followed by diffusers from the same start.
  void expect_twenty_steps_as_diffusers(int stages, const std::string& flags) {
    const ProgramEnd trained =
        train(plan_for(stages, flags), "out", "--steps 20 " + audited("0-19"));
    ASSERT_EQ(trained.code, 0) << trained.err;
    expect_followed();
    expect_redone("0,1,19");
  }

  void expect_followed() {
    const ProgramEnd followed = audit("--follow --json");
    ASSERT_EQ(followed.code, 0) << followed.out << followed.err;
    const json report = json::parse(followed.out);
    EXPECT_EQ(report["bounds"]["loss"], 1e-5);
    EXPECT_EQ(report["bounds"]["norm"], 1e-5);
    EXPECT_EQ(report["bounds"]["update"], 1e-3);
    ASSERT_EQ(report["steps"].size(), 20u);
    int clipped = 0;
    for (const json& step : report["steps"]) clipped += step["clipped"].get<bool>() ? 1 : 0;
    fmt::print("worst loss {:.1e}, worst norm {:.1e}, update {:.1e}, {} of 20 steps clipped\n",
               worst(report, "loss"), worst(report, "norm"), worst(report, "update"), clipped);
    // Clipping must act in some steps and not in others, or it was not looked at.
    EXPECT_GT(clipped, 0);
    EXPECT_LT(clipped, 20);
  }

  // Some steps from the run's own weights and moments: gradients too, which following leaves out.
  void expect_redone(const std::string& steps) {
    const ProgramEnd redone = audit("--json --steps " + steps);
    ASSERT_EQ(redone.code, 0) << redone.out << redone.err;
    const json report = json::parse(redone.out);
    const std::map<std::string, double> bounds = {
        {"prediction", 1e-5}, {"gradient", 1e-5}, {"moments", 3e-5}, {"optimizer", 1e-3}};
    for (const auto& [kind, bound] : bounds) {
      EXPECT_EQ(report["bounds"][kind], bound) << kind;
      fmt::print("worst {} {:.1e}\n", kind, worst(report, kind));
    }
    ASSERT_EQ(report["steps"].size(), 3u);
    for (const json& step : report["steps"]) EXPECT_TRUE(step.contains("gradient"));
    EXPECT_TRUE(report["steps"][1].contains("moments"));
  }

  // The largest difference of a kind in those steps that compare it.
  static double worst(const json& report, const std::string& kind) {
    double largest = 0;
    for (const json& step : report["steps"]) largest = std::max(largest, step.value(kind, 0.0));
    return largest;
  }
};

// Minutes of arithmetic under a sanitizer, and no times to keep.
class AuditLarge : public AuditMultiProcess {};

TEST_F(AuditLarge, TwentyStepsOfControlNetAreDiffusersSteps) {
  expect_twenty_steps_as_diffusers(4, "");
}

// The other choices of what is trained: each takes as long again.
class AuditSlow : public AuditMultiProcess {};

TEST_F(AuditSlow, TwentyStepsOfControlNetAndDecoderAreDiffusersSteps) {
  expect_twenty_steps_as_diffusers(2, "--sd-unlocked");
}

TEST_F(AuditSlow, TwentyStepsOfMiddleControlAreDiffusersSteps) {
  clip_ = 2;
  expect_twenty_steps_as_diffusers(2, "--only-mid-control");
}

TEST_F(AuditSlow, TwentyStepsOfTheWholeUNetAreDiffusersSteps) {
  clip_ = 40;
  expect_twenty_steps_as_diffusers(2, "--what unet");
}

TEST_F(AuditMultiProcess, AuditingChangesNoBitOfTheTraining) {
  const std::string plan = plan_for(2);
  ASSERT_EQ(train(plan, "without", "--steps 3").code, 0);
  folder_.write("audit/audit.json", "of a run that came to no step");
  const ProgramEnd with = train(plan, "with", "--steps 3 " + audited("0,2"));
  ASSERT_EQ(with.code, 0) << with.err;
  EXPECT_EQ(weights_of(folder_.file("with")), weights_of(folder_.file("without")));
  const auto numbers = [&](const std::string& out) {
    std::istringstream lines(text_of(folder_.file(out) + "/metrics.jsonl"));
    std::vector<json> metrics;
    for (std::string line; std::getline(lines, line);) {
      metrics.push_back(json::parse(line));
      metrics.back().erase("seconds");
      metrics.back().erase("samples_per_second");
    }
    return metrics;
  };
  ASSERT_EQ(numbers("with").size(), 3u);
  EXPECT_EQ(numbers("with"), numbers("without"));
  EXPECT_FALSE(fs::exists(folder_.file("audit/step_000001")));
}

TEST_F(AuditLarge, AnyChangedNumberIsNoticed) {
  const ProgramEnd trained = train(plan_for(2), "out", "--steps 2 " + audited("0,1"));
  ASSERT_EQ(trained.code, 0) << trained.err;
  must_run(python_command("tests/python/audit_mutants.py",
                          {folder_.file("audit"), weights(), folder_.file("scratch")}));
}

class AuditRefusedMultiProcess : public AuditMultiProcess {};

TEST_F(AuditRefusedMultiProcess, AFolderThatHoldsFiles) {
  folder_.write("audit/old", "");
  const ProgramEnd refused = train(plan_for(1), "out", "--steps 2 " + audited("0"));
  EXPECT_EQ(refused.code, 12);
  EXPECT_THAT(refused.err, HasSubstr("holds files already; choose another folder"));
}

TEST_F(AuditRefusedMultiProcess, StepsThatAreNoneOrBeyondTheEnd) {
  const std::string plan = plan_for(1);
  for (const char* steps : {"0,2", "1-", "-1", "a", "1-0", "0;1", "0-99999999999"}) {
    const ProgramEnd refused =
        train(plan, "out", "--steps 2 " + audited(fmt::format("'{}'", steps)));
    EXPECT_EQ(refused.code, 2) << steps;
    EXPECT_THAT(refused.err, HasSubstr("--audit-steps")) << steps;
  }
}

TEST_F(AuditRefusedMultiProcess, AFileThatCannotBeWrittenEndsTheRunWithItsName) {
  const std::string plan = plan_for(2);
  ASSERT_EQ(train(plan, "out", "--steps 1").code, 0);  // fills the cache
  // The audit's files are the first of more than 4 MiB.
  const ProgramEnd ended = run_program(fmt::format(
      "sh -c 'ulimit -f 8192; exec {}'", train_command(plan, "full", "--steps 1 " + audited("0"))));
  EXPECT_EQ(ended.code, 7);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("/step_000000/rank_"), HasSubstr("File too large")));
  for (const auto& entry : fs::recursive_directory_iterator(folder_.file("audit"))) {
    EXPECT_NE(entry.path().extension(), ".safetensors") << "a half-written file has its name";
  }
}

}  // namespace
}  // namespace stagecraft
