// The program `partition` as its users run it, on the tiny model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "partitioner/base/files.h"
#include "partitioner/plan/measured.h"
#include "partitioner/plan/plan.h"
#include "tests/support/programs.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string last_line(const std::string& text) {
  const size_t end = text.find_last_not_of('\n');
  const size_t start = text.rfind('\n', end);
  return text.substr(start == std::string::npos ? 0 : start + 1);
}

class PartitionProgram : public ::testing::Test {
 protected:
  // `arguments` as for a shell.
  static ProgramEnd run(const std::string& arguments) {
    return run_program(STAGECRAFT_BIN_DIR "/partition " + arguments);
  }

  std::string job(int ranks = 4) const {  // of two it is planned much faster
    return fmt::format("--config {0}train/tiny_demo.yaml --cluster {0}clusters/local_cpu_{1}.yaml ",
                       kConfigs, ranks);
  }
  std::string plan() const { return folder_.file("plan.yaml"); }
  std::string make_plan(const std::string& flags = "", int ranks = 4) {
    const ProgramEnd made = run(job(ranks) + flags + " -o " + plan());
    EXPECT_EQ(made.code, 0) << made.err;
    return made.out;
  }
  void edit_plan(const std::string& from, const std::string& to) {
    std::string text = read_file(plan(), 4 << 20);
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    folder_.write("plan.yaml", text.replace(at, from.size(), to));
  }

  TempFolder folder_;
};

TEST_F(PartitionProgram, WritesAPlanThatVerifies) {
  const std::string out = make_plan();
  EXPECT_THAT(
      out, AllOf(StartsWith("sd15_controlnet_tiny, 128x192 pixels"), HasSubstr("\nA step takes "),
                 HasSubstr("\nchosen: "), HasSubstr("next: pipetrain --plan")));
  EXPECT_EQ(read_plan(plan()).stages.size(), 4u);
  const ProgramEnd verified = run("verify " + plan());
  EXPECT_EQ(verified.code, 0) << verified.err;
  EXPECT_THAT(verified.out, HasSubstr("can run: 4 stages on 4 ranks, 4 micro-batches"));
}

TEST_F(PartitionProgram, FlagsOverrideTheTrainingFile) {
  make_plan("--width 192 --height 128 --batch 6 --micro-batch 3 --stages 2 --schedule gpipe");
  const Plan made = read_plan(plan());
  EXPECT_EQ(made.train.width, 192);
  EXPECT_EQ(made.train.height, 128);
  EXPECT_EQ(made.train.batch, 6);
  EXPECT_EQ(made.train.micro_batch, 3);
  EXPECT_EQ(made.stages.size(), 2u);
  EXPECT_EQ(made.schedule, "gpipe");
}

TEST_F(PartitionProgram, PlansFor3090WithoutOne) {
  const ProgramEnd made = run("--config " + kConfigs + "train/sd15_controlnet.yaml --cluster " +
                              kConfigs + "clusters/4x3090.yaml -o " + plan());
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("\n    data parallel, done right "),
                              HasSubstr("Of the other ways that fit \"")));
  EXPECT_THAT(made.out, AllOf(HasSubstr("\nnext: GPU ranks and half precision do not train yet"),
                              HasSubstr("--cluster local_cpu_4 --precision fp32 -o " +
                                        folder_.file("plan_cpu.yaml"))));
}

TEST_F(PartitionProgram, ReportSaysWhyDataParallelFails) {
  ASSERT_EQ(run("--config " + kConfigs + "train/sd15_controlnet.yaml --cluster " + kConfigs +
                "clusters/4x3090.yaml -o " + plan())
                .code,
            0);
  const ProgramEnd report = run("report " + plan() + " --seen-on-one-device 22542");
  // Static memory of cldm for this job, from parameter counts times 4 bytes.
  EXPECT_THAT(
      report.out,
      HasSubstr("static sum                                              11,528.6       16,185.6"));
  EXPECT_THAT(report.out, HasSubstr("27,199.0 MiB DOES NOT FIT 24,262.0 MiB (rtx3090)"));
}

TEST_F(PartitionProgram, ComparesThePlanWithKnownSplitsAndOtherWays) {
  const ProgramEnd compared = run("compare " + job());
  ASSERT_EQ(compared.code, 0) << compared.err;
  for (const char* row :
       {"this plan", "DeepSpeed uniform", "DeepSpeed parameters", "torchgpipe by time",
        "torchgpipe by size", "least largest stage, over branches", "one device, done right",
        "data parallel, as known trainers do it", "2 replicas of 2 stages"}) {
    EXPECT_THAT(compared.out, HasSubstr(std::string("\n    ") + row));
  }
  EXPECT_FALSE(std::filesystem::exists("plan.yaml"));
  const ProgramEnd as_json = run("compare --json " + job());
  const json out = json::parse(as_json.out);
  EXPECT_EQ(out["code"], 0);
  EXPECT_GE(out["splits"].size(), 7u);
  EXPECT_GE(out["alternatives"].size(), 6u);
}

// The cap is what a rank may use, for the plan and for all that it is compared with.
TEST_F(PartitionProgram, ComparesUnderTheMemoryCap) {
  const ProgramEnd compared = run("compare --memory-cap 240 --json " + job());
  ASSERT_EQ(compared.code, 0) << compared.err;
  const json out = json::parse(compared.out);
  EXPECT_EQ(out["splits"][0]["fits"], true);
  EXPECT_EQ(out["splits"][0]["device_memory"], 240 << 20);
  EXPECT_EQ(out["alternatives"][0]["device_memory"], 240 << 20);
  EXPECT_EQ(out["alternatives"][0]["fits"], false);
}

TEST_F(PartitionProgram, SavedCostTableIsReused) {
  const std::string table = folder_.file("costs.json");
  make_plan("--cost-table " + table, 2);
  const std::string first = read_file(plan(), 4 << 20);
  EXPECT_THAT(make_plan("--cost-table " + table, 2), StartsWith("costs from " + table));
  EXPECT_EQ(read_file(plan(), 4 << 20), first);
}

TEST_F(PartitionProgram, CostTableOfAnotherJobIsAMismatch) {
  const std::string table = folder_.file("costs.json");
  make_plan("--cost-table " + table, 2);
  const ProgramEnd other = run(job(2) + "--width 192 -o " + plan() + " --cost-table " + table);
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("made for pixels 128x192, this job has 192x192"));
}

TEST_F(PartitionProgram, CostTableOfAnotherDeviceIsAMismatch) {
  const std::string table = folder_.file("costs.json");
  make_plan("--cost-table " + table, 2);
  const ProgramEnd other =
      run("--config " + kConfigs + "train/tiny_demo.yaml --cluster " + kConfigs +
          "clusters/4x3090.yaml -o " + plan() + " --cost-table " + table);
  EXPECT_EQ(other.code, 4);
  EXPECT_THAT(other.err, HasSubstr("made for device cpu, this job has rtx3090"));
}

TEST_F(PartitionProgram, ADeviceFileOfTheClusterIsNotWrittenOver) {
  const std::string device = read_file(kConfigs + "devices/rtx3090.yaml", 1 << 20);
  folder_.write("card.yaml", device);
  folder_.write("mine.yaml",
                "name: mine\ndevices:\n  - {device: card.yaml, count: 2}\n"
                "link: {bandwidth_gb_per_s: 10, latency_us: 20}\n");
  for (const char* flag : {"-o ", "--html "}) {
    const ProgramEnd refused =
        run("--config " + kConfigs + "train/tiny_demo.yaml --cluster " + folder_.file("mine.yaml") +
            " " + flag + folder_.file("card.yaml"));
    EXPECT_EQ(refused.code, 2) << flag;
    EXPECT_THAT(refused.err, HasSubstr("that is the device file; choose another file")) << flag;
    EXPECT_EQ(read_file(folder_.file("card.yaml"), 1 << 20), device) << flag;
  }
}

TEST_F(PartitionProgram, PredictionsOfBeforeAnEditAreNotReported) {
  make_plan("--schedule 1f1b", 2);
  edit_plan("schedule: 1f1b", "schedule: gpipe");
  const ProgramEnd refused = run("report " + plan());
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("no predictions, or those of before it was edited"));
  const ProgramEnd anew = run("verify " + plan() + " --cluster " + kConfigs +
                              "clusters/local_cpu_2.yaml -o " + folder_.file("new.yaml"));
  EXPECT_EQ(anew.code, 0) << anew.err;
  EXPECT_THAT(run("report " + folder_.file("new.yaml")).out, HasSubstr(", gpipe, 2 stages"));
}

TEST_F(PartitionProgram, AMissingClusterIsNamedWithItsFlag) {
  const ProgramEnd refused =
      run("--config " + kConfigs + "train/tiny_demo.yaml --cluster 5x3090 -o " + plan());
  EXPECT_EQ(refused.code, 7);
  EXPECT_THAT(
      refused.err,
      StartsWith("--cluster 5x3090: no such file, nor is there configs/clusters/5x3090.yaml; "));
}

TEST_F(PartitionProgram, OneTableDoesNotServeCardsOfTwoKinds) {
  const std::string mixed = "--config " + kConfigs + "train/tiny_demo.yaml --cluster " + kConfigs +
                            "clusters/2x4080_2x3090.yaml -o " + plan();
  for (const std::string flag : {"--cost-table", "--profile"}) {
    const std::string value = flag == "--cost-table" ? " " + folder_.file("costs.json") : "";
    const ProgramEnd refused = run(mixed + " " + flag + value);
    EXPECT_EQ(refused.code, 2);
    EXPECT_EQ(refused.err, flag + " has the costs of one kind of device, cluster 2x4080_2x3090 " +
                               "mixes rtx4080 and rtx3090; leave " + flag +
                               " out to count for each\n");
  }
}

TEST_F(PartitionProgram, ProfileMeasuresEveryBlock) {
  const std::string table = folder_.file("costs.json");
  const std::string out = make_plan("--profile --cost-table " + table);
  EXPECT_THAT(out, HasSubstr("costs: measured, "));
  const CostTable costs = read_cost_table(table);
  EXPECT_GT(costs.blocks.at("unet.conv_in").forward.median.count, 0);
}

TEST_F(PartitionProgram, ProfileForOtherDevicesIsRefused) {
  const ProgramEnd refused =
      run("--profile --config " + kConfigs + "train/tiny_demo.yaml --cluster " + kConfigs +
          "clusters/4x3090.yaml -o " + plan());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("cluster 4x3090 has rtx3090"));
}

TEST_F(PartitionProgram, ACapIsOneSizeHoweverItIsWritten) {
  const auto plan_with = [&](const std::string& cap) {
    const ProgramEnd made = run(job(2) + "--memory-cap " + cap + " -o " + plan());
    EXPECT_EQ(made.code, 0) << made.err;
    return read_file(plan(), 4 << 20);
  };
  const std::string plain = plan_with("1024");
  EXPECT_EQ(plan_with("1GiB"), plain);
  EXPECT_EQ(plan_with("1024MiB,1GiB"), plain);
  for (const char* cap : {"1GiB,", ",1GiB", "1GiB,,1GiB"})
    EXPECT_THAT(run(job(2) + "--memory-cap " + cap + " -o " + plan()).err,
                HasSubstr("--memory-cap: nothing is no size"))
        << cap;
  const ProgramEnd refused = run(job(2) + "--memory-cap 1GB -o " + plan());
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("--memory-cap: 1GB is no size: write 20GiB, 20480MiB or "
                                     "20480 (MiB)"));
}

TEST_F(PartitionProgram, PlanThatCannotFitIsRefusedWithTheNumbers) {
  const ProgramEnd refused = run(job() + "--memory-cap 130 -o " + plan());
  EXPECT_EQ(refused.code, 13);
  EXPECT_THAT(refused.err, HasSubstr("MiB"));
  EXPECT_FALSE(std::filesystem::exists(plan()));
}

TEST_F(PartitionProgram, FaultsOfAnEditedPlanAreNamedAllAtOnce) {
  make_plan();
  edit_plan("      - unet.conv_in\n", "      - unet.conv_inn\n");
  edit_plan("micro_batch: 2", "micro_batch: 2.0");
  const ProgramEnd structure = run("verify " + plan());
  EXPECT_EQ(structure.code, 3);
  EXPECT_THAT(structure.err, HasSubstr("train.micro_batch must be a whole number"));
  edit_plan("micro_batch: 2.0", "micro_batch: 2");
  const ProgramEnd names = run("verify " + plan());
  EXPECT_EQ(names.code, 3);
  EXPECT_THAT(names.err,
              AllOf(HasSubstr("the model has no block unet.conv_inn, did you mean unet.conv_in?"),
                    HasSubstr("block unet.conv_in is on no stage")));
}

TEST_F(PartitionProgram, VerifyWritesPredictionsAnew) {
  make_plan();
  const Plan before = read_plan(plan());
  std::string text = read_file(plan(), 4 << 20);
  folder_.write("plan.yaml", text.substr(0, text.find("\npredicted:")));
  EXPECT_EQ(run("report " + plan()).code, 3);
  const ProgramEnd anew =
      run("verify " + plan() + " --cluster " + kConfigs + "clusters/local_cpu_4.yaml -o " + plan());
  EXPECT_EQ(anew.code, 0) << anew.err;
  Plan expected = before;
  expected.front.clear();  // what the search saw is not found again
  EXPECT_EQ(read_plan(plan()), expected);
}

TEST_F(PartitionProgram, ReportSetsMeasuredBesidePredicted) {
  make_plan();
  const Plan made = read_plan(plan());
  Measured measured{.plan_hash = plan_hash(made), .machine = "test", .steps = 1, .ranks = {}};
  for (const PlannedRank& rank : made.ranks) {
    MeasuredRank seen;
    seen.memory = rank.memory;
    seen.peak_allocator = rank.memory.without_base();
    seen.busy_seconds = seen.step_seconds = 1;
    measured.ranks.push_back(seen);
  }
  write_measured(measured, folder_.file("measured.json"));
  const ProgramEnd report =
      run("report " + plan() + " --json --measured " + folder_.file("measured.json"));
  ASSERT_EQ(report.code, 0) << report.err;
  const json out = json::parse(report.out);
  EXPECT_EQ(out["code"], 0);
  EXPECT_DOUBLE_EQ(out["ranks"][2]["ratio"]["weights"], 1.0);
}

TEST_F(PartitionProgram, WritesPageAndTraceOfThePlan) {
  const std::string page = folder_.file("page.html"), trace = folder_.file("trace.json");
  EXPECT_THAT(make_plan("--html " + page + " --trace " + trace), HasSubstr("\npage: " + page));
  const Plan made = read_plan(plan());
  EXPECT_THAT(read_file(page, 4 << 20), HasSubstr("Chosen: "));
  int64_t end = 0;
  const json written = json::parse(read_file(trace, 4 << 20));
  for (const json& event : written["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double micros = event["ts"].get<double>() + event["dur"].get<double>();
    end = std::max<int64_t>(end, std::llround(micros * 1e3));
  }
  EXPECT_EQ(end, made.predicted_step.count);
}

// The cluster that the plan names lies beside its model's folder, wherever the program is started.
TEST_F(PartitionProgram, ReportFindsThePlansClusterAndShowsTheSameStep) {
  const std::string first = folder_.file("first.json"), again = folder_.file("again.json");
  make_plan("--trace " + first);
  const ProgramEnd report =
      run_program("cd / && " STAGECRAFT_BIN_DIR "/partition report " + plan() + " --html " +
                  folder_.file("p.html") + " --trace " + again);
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_EQ(read_file(again, 4 << 20), read_file(first, 4 << 20));
  EXPECT_THAT(read_file(folder_.file("p.html"), 4 << 20), HasSubstr("\"notes\":[]"));
}

TEST_F(PartitionProgram, ReportOfAnUnknownClusterAsksForItsFile) {
  make_plan();
  for (const std::string name : {"mine", "../train/tiny_demo"}) {
    edit_plan("\ncluster: ", "\ncluster: " + name + " #");
    const ProgramEnd page = run("report " + plan() + " --html " + folder_.file("p.html"));
    EXPECT_EQ(page.code, 2) << name;
    EXPECT_THAT(page.err, HasSubstr("; name it with --cluster"));
    EXPECT_FALSE(std::filesystem::exists(folder_.file("p.html")));
    EXPECT_EQ(run("report --json " + plan()).code, 0);
  }
  EXPECT_EQ(run("report " + plan() + " --html " + folder_.file("p.html") + " --cluster " +
                kConfigs + "clusters/local_cpu_4.yaml")
                .code,
            0);
}

TEST_F(PartitionProgram, ReportForAnotherClusterIsAMismatch) {
  make_plan();
  const ProgramEnd refused = run("report " + plan() + " --html " + folder_.file("p.html") +
                                 " --cluster " + kConfigs + "clusters/4x3090.yaml");
  EXPECT_EQ(refused.code, 4);
  EXPECT_THAT(refused.err,
              HasSubstr("rank 0 of the plan is a cpu, cluster 4x3090 has rtx3090 there"));
}

TEST_F(PartitionProgram, ViewsDoNotReplaceWhatTheyAreMadeOf) {
  make_plan();
  const ProgramEnd page = run("report " + plan() + " --html " + plan());
  EXPECT_EQ(page.code, 2);
  EXPECT_THAT(page.err, HasSubstr("that is the plan; choose another file"));
  const ProgramEnd same = run(job() + "-o " + plan() + " --html a.html --trace a.html");
  EXPECT_EQ(same.code, 2);
  EXPECT_THAT(same.err, HasSubstr("--trace a.html: that is the page"));
}

TEST_F(PartitionProgram, JsonOfPlanAndReportSaysWhyRanksWait) {
  const ProgramEnd made = run(job() + "--json -o " + plan());
  const json planned = json::parse(made.out)["report"];
  const json reported = json::parse(run("report --json " + plan()).out);
  for (const json& report : {planned, reported}) {
    double idle = 0;
    for (const json& rank : report["ranks"]) {
      for (const json& seconds : rank["bubbles_seconds"]) idle += seconds.get<double>();
    }
    EXPECT_NEAR(idle / (4 * report["step_seconds"].get<double>()), report["bubble"], 1e-6);
  }
  EXPECT_TRUE(reported["front"].is_array());
  EXPECT_TRUE(reported["alternatives"].is_array());
}

TEST_F(PartitionProgram, JsonPlanIsOneObject) {
  const ProgramEnd made = run(job() + "--json -o " + plan());
  ASSERT_EQ(made.code, 0) << made.err;
  const json out = json::parse(made.out);
  EXPECT_EQ(out["plan_hash"], plan_hash(read_plan(plan())));
  EXPECT_GT(out["down_sets"], 4);
  EXPECT_EQ(out["report"]["ranks"].size(), 4u);
}

TEST_F(PartitionProgram, ErrorsWithJsonEndInAnObject) {
  for (const char* flags : {"--batch \"\" ", "--batch= ", "--threads '' "}) {
    const ProgramEnd empty = run(job() + flags + "-o " + plan());
    EXPECT_EQ(empty.code, 2) << flags;
    EXPECT_THAT(empty.err, HasSubstr("is empty: give a value")) << flags;
  }
  const ProgramEnd refused = run(job() + "--batch 0 --json -o " + plan());
  EXPECT_EQ(refused.code, 2);
  const json last = json::parse(last_line(refused.err));
  EXPECT_EQ(last["code"], 2);
  EXPECT_EQ(last["reason"],
            "with the flags given, batch is out of range: 0, allowed is 1 to 65536");
}

TEST_F(PartitionProgram, WrongUsageIsOneLine) {
  for (const std::string arguments :
       {"--bogus", "", "graph", "verify", "report a b", "--stages x", "compare", "compare -o x"}) {
    const ProgramEnd refused = run(arguments);
    EXPECT_EQ(refused.code, 2) << arguments;
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
  EXPECT_EQ(run("--help").code, 0);
  EXPECT_THAT(run("--version").out, StartsWith("stagecraft "));
}

TEST_F(PartitionProgram, MissingFilesAreIoErrors) {
  EXPECT_EQ(run("verify " + folder_.file("none.yaml")).code, 7);
  EXPECT_EQ(run(job() + "-o " + folder_.file("no/plan.yaml")).code, 7);
}

TEST_F(PartitionProgram, FullOutputIsAnIoError) {
  const std::string graph = "graph --model " + kConfigs + "models/sd15_controlnet_tiny.yaml";
  EXPECT_EQ(run(graph + " >/dev/full").code, 7);
}

TEST_F(PartitionProgram, APlanWhoseModelIsNotThereSaysWhereItWasLookedFor) {
  make_plan();
  edit_plan("model: ", "model: nowhere/");
  const ProgramEnd refused = run("verify " + plan());
  EXPECT_EQ(refused.code, 7);
  EXPECT_THAT(refused.err, HasSubstr("no such model file; `model` in a plan"));
}

TEST_F(PartitionProgram, AnOutputThatIsAnInputIsRefused) {
  const std::string costs = folder_.file("costs.json");
  const ProgramEnd refused = run(job() + "--cost-table " + costs + " -o " + costs);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("that is the cost table; choose another file"));
  EXPECT_FALSE(std::filesystem::exists(costs));
}

TEST_F(PartitionProgram, MessagesAreLinesOfUtf8WhateverAPathHolds) {
  const ProgramEnd missing = run("verify \"$(printf 'no\\377\\033.yaml')\"");
  EXPECT_EQ(missing.code, 7);
  EXPECT_THAT(missing.err, HasSubstr("no??.yaml"));
  const ProgramEnd broken = run("verify 'no\nsuch.yaml'");
  EXPECT_EQ(broken.code, 2);
  EXPECT_EQ(broken.err, "argument 2 holds a line break\n");
}

TEST_F(PartitionProgram, AFullOutputIsNoticedByVersionAndHelpToo) {
  EXPECT_EQ(run("--version >/dev/full").code, 7);
}

TEST_F(PartitionProgram, GraphCountsTheRealModel) {
  const ProgramEnd graph = run("graph --json --model " + kConfigs + "models/sd15_controlnet.yaml");
  ASSERT_EQ(graph.code, 0) << graph.err;
  const json parts = json::parse(graph.out)["parts"];
  EXPECT_EQ(parts["unet"]["parameters"], 859'520'964);
  EXPECT_EQ(parts["controlnet"]["parameters"], 361'279'120);
  EXPECT_EQ(parts["vae"]["parameters"], 83'653'863);
  EXPECT_EQ(parts["text_encoder"]["parameters"], 123'060'480);
}

TEST_F(PartitionProgram, TheChoiceIsNarrowedByFlags) {
  make_plan("--fix unet.conv_in=0 --prefer memory --no-recompute --stages 3 --schedule 1f1b");
  const Plan made = read_plan(plan());
  EXPECT_EQ(made.stages.size(), 3u);
  EXPECT_TRUE(made.recompute.empty());
  ASSERT_FALSE(made.front.empty());
  EXPECT_TRUE(made.front.back().is_chosen);
  EXPECT_THAT(made.stages[0].blocks, ::testing::Contains("unet.conv_in"));
}

TEST_F(PartitionProgram, ReportRefusesWhatItWouldNotUse) {
  make_plan("--stages 2 --schedule 1f1b");
  for (const std::string& flags : {"--cluster " + kConfigs + "clusters/local_cpu_4.yaml",
                                   std::string("--cost-table costs.json")}) {
    const ProgramEnd refused = run("report " + plan() + " " + flags);
    EXPECT_EQ(refused.code, 2) << flags;
    EXPECT_THAT(refused.err, HasSubstr("is for the simulated step, which --html, --trace and "
                                       "--json show"));
  }
}

TEST_F(PartitionProgram, RefusesChoicesThatMakeNoSense) {
  const std::string command = "--config " + kConfigs + "train/tiny_demo.yaml --cluster " +
                              kConfigs + "clusters/local_cpu_4.yaml -o " + plan();
  const auto refused = [&](const std::string& flags, int code, const std::string& text) {
    const ProgramEnd end = run(command + " " + flags);
    EXPECT_EQ(end.code, code) << flags;
    EXPECT_THAT(end.err, HasSubstr(text)) << flags;
  };
  refused("--time-limit nan", 2, "--time-limit");
  refused("--micro-batch x", 2, "give a number of samples, or any");
  refused("--fix unet.conv_in", 2, "give block=rank");
  refused("--fix unet.nothing=0", 2, "has no block unet.nothing");
  refused("--fix unet.conv_in=9", 2, "ranks are 0 to 3");
  refused("--fix unet.conv_in=0 --fix unet.conv_in=1", 2, "rank 0 and to rank 1: give one");
  refused("--stages 5", 2, "5 stages on 4 devices of cluster local_cpu_4: give 1 to 4");
  refused("--threads 2", 2, "--threads requires --profile");
  refused("--batch 99999999999999999999", 2, "--batch: 99999999999999999999 is not a whole");
  refused("x --model", 2, "--model");
  refused("x y", 2, "not expected: x y; see partition --help");
  refused("--html " + folder_.file("./plan.yaml"), 2, "that is the plan");
}

}  // namespace
}  // namespace stagecraft
