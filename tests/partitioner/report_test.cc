#include "partitioner/plan/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "partitioner/plan/ways.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kMib = 1 << 20;

BlockGraph three_blocks() {
  return ToyGraph()
      .add("a", {"input.x"}, false)
      .add("b", {"a"}, true)
      .add("c", {"b"}, true)
      .build("c");
}

Placement toy_placement() {
  Placement placement;
  placement.stage_of_block = {0, 0, 1};
  placement.rank_of_stage = {0, 1};
  placement.recompute.assign(3, false);
  return placement;
}

PlannedRank planned(int64_t busy_ms, int64_t mib) {
  PlannedRank rank{
      .device = "toy", .device_memory = {40 * kMib}, .busy = {busy_ms * 1'000'000}, .memory = {}};
  rank.memory[MemoryLine::kProcessBase] = {5 * kMib};
  rank.memory[MemoryLine::kWeights] = {(mib - 5) * kMib};
  return rank;
}

Plan three_block_plan() {
  Plan plan;
  plan.graph_hash = graph_hash(three_blocks());
  plan.cluster = "two";
  plan.stages = {{.rank = 0, .blocks = {"a", "b"}}, {.rank = 1, .blocks = {"c"}}};
  plan.cost_table = "analytic, toy";
  plan.predicted_step = {400'000'000};
  plan.predicted_bubble = 0.25;
  plan.ranks = {planned(300, 30), planned(100, 10)};
  plan.one_device = planned(500, 35);
  plan.data_parallel = planned(260, 37);
  return plan;
}

Measured toy_measured() {
  Measured measured{
      .plan_hash = plan_hash(three_block_plan()), .machine = "here", .steps = 3, .ranks = {}};
  for (int r = 0; r < 2; ++r) {
    MeasuredRank rank;
    rank.memory[MemoryLine::kWeights] = {(r == 0 ? 50 : 5) * kMib};
    rank.peak_allocator = rank.memory.without_base();
    rank.peak_rss = {60 * kMib};
    rank.base_rss = {6 * kMib};
    rank.grown_files = {1 * kMib};
    rank.grown_heap = {53 * kMib};
    rank.busy_seconds = r == 0 ? 0.3 : 0.2;
    rank.busy_cpu_seconds = rank.busy_seconds / 2;
    rank.step_seconds = 0.5;
    rank.cpu_seconds = 0.35;
    measured.ranks.push_back(rank);
  }
  return measured;
}

Report toy_report(const ReportOptions& options = {}) {
  return make_report(three_block_plan(), three_blocks(), toy_placement(), options);
}

TEST(Report, BalanceIsMaxOverMean) {
  const Report report = toy_report();
  EXPECT_DOUBLE_EQ(report.balance.time, 1.5);
  EXPECT_DOUBLE_EQ(report.balance.memory, 1.5);
  EXPECT_DOUBLE_EQ(report.ranks[0].time_share, 0.75);
  EXPECT_EQ(report.ranks[0].blocks, (std::vector<std::string>{"a", "b"}));
}

TEST(Report, MeasuredStandsBesideThePrediction) {
  ReportOptions options;
  options.measured = toy_measured();
  const Report report = toy_report(options);
  EXPECT_DOUBLE_EQ(*report.measured_bubble, 0.5);
  EXPECT_DOUBLE_EQ(report.measured_balance->time, 1.2);
  EXPECT_THAT(to_text(report),
              HasSubstr("weights, MiB                    25.0        50.0    2.00\n"));
}

TEST(Report, SaysHowMuchOfTheBusyTimeARankHadACore) {
  ReportOptions options;
  options.measured = toy_measured();
  EXPECT_THAT(to_text(toy_report(options)),
              HasSubstr("busy, ms (75.0 %)              300.0       300.0    1.00\n"
                        "      of it on a core, ms          300.0       150.0    0.50\n"));
}

TEST(Report, SaysWhatTheResidentSizeHoldsBesideTensors) {
  ReportOptions options;
  options.measured = toy_measured();
  EXPECT_THAT(to_text(toy_report(options)),
              HasSubstr("resident size 60.0 MiB: base 6.0 MiB, tensors 50.0 MiB, libraries read in "
                        "since 1.0 MiB, other heap 3.0 MiB\n"));
}

TEST(Report, LineWithoutAMeasurementIsShownAsPredictedOnly) {
  Plan plan = three_block_plan();
  plan.ranks[0].memory[MemoryLine::kSlack] = {3 * kMib};
  ReportOptions options;
  options.measured = toy_measured();
  options.measured->plan_hash = plan_hash(plan);
  const Report report = make_report(plan, three_blocks(), toy_placement(), options);
  EXPECT_THAT(to_text(report),
              HasSubstr("slack, MiB                       3.0           –       –\n"));
  const auto rank = nlohmann::json::parse(to_json(report))["ranks"][0];
  EXPECT_EQ(rank["predicted"]["memory"]["slack"], 3 * kMib);
  EXPECT_TRUE(rank["measured"]["memory"].at("slack").is_null());
  EXPECT_FALSE(rank["ratio"].contains("slack"));
}

TEST(Report, WithoutMeasurementsTheColumnIsEmpty) {
  EXPECT_THAT(to_text(toy_report()), Not(HasSubstr("measured")));
}

TEST(Report, SaysThatTheLastMicroBatchIsSmaller) {
  Plan plan = three_block_plan();
  plan.train.batch = 7;
  plan.train.micro_batch = 3;
  EXPECT_EQ(batch_text(plan), "batch 7 as micro-batches of 3, the last of 1");
  EXPECT_THAT(to_text(make_report(plan, three_blocks(), toy_placement(), {})),
              HasSubstr(batch_text(plan)));
}

TEST(Report, TheFullestDeviceIsTheSameInTheHeadAndBesideTheOtherWays) {
  Plan plan = three_block_plan();
  const Bytes most = plan.ranks[0].memory.total(), less = plan.ranks[1].memory.total();
  ASSERT_GT(most, less);
  // Rank 0 has more of its memory taken, rank 1 fewer bytes free.
  plan.ranks[0].device_memory = Bytes{most.count / 4 * 5};
  plan.ranks[1].device_memory = less + Bytes{most.count / 4 - 1};
  EXPECT_EQ(as_way(plan).memory, plan.ranks[0].memory.total());
  EXPECT_THAT(to_text(make_report(plan, three_blocks(), toy_placement(), {})),
              HasSubstr("The fullest device, rank 0, "));
  plan.ranks[1].device_memory = plan.ranks[1].memory.total() - Bytes{1};
  EXPECT_EQ(as_way(plan).memory, plan.ranks[1].memory.total());
  EXPECT_THAT(to_text(make_report(plan, three_blocks(), toy_placement(), {})),
              HasSubstr("The fullest device, rank 1, "));
}

TEST(Report, StartsWithWhatAStepTakesAndWhetherItFits) {
  EXPECT_THAT(to_text(toy_report()),
              AllOf(StartsWith("toy, 512x512 pixels, fp32, batch 4 as micro-batches of 1, "),
                    HasSubstr("\nA step takes 400.0 ms. The fullest device, rank 0, holds 30.0 MiB "
                              "of its 40.0 MiB; everything fits.\n")));
  Plan plan = three_block_plan();
  plan.ranks[1].device_memory = {9 * kMib};
  const std::string text = to_text(make_report(plan, three_blocks(), toy_placement(), {}));
  EXPECT_THAT(text,
              HasSubstr("The fullest device, rank 1, holds 10.0 MiB of its 9.0 MiB; 1 of 2 DO "
                        "NOT FIT.\n"));
  EXPECT_THAT(text, HasSubstr("9.0  DOES NOT FIT; c\n"));
}

TEST(Report, EndsWithATableOfTheRanks) {
  const std::string table =
      "\nrank  device         busy  of step  memory, MiB       of device  blocks\n"
      "   0  toy        300.0 ms     75 %         30.0            40.0  2 blocks, a ... b\n"
      "   1  toy        100.0 ms     25 %         10.0            40.0  c\n";
  for (const std::string& text :
       {balance_text(toy_report()), summary_text(toy_report()), to_text(toy_report())}) {
    EXPECT_TRUE(text.ends_with(table)) << text;
  }
}

TEST(Report, ShowsRanksSideBySide) {
  EXPECT_THAT(to_text(toy_report()), HasSubstr("                         rank 0     rank 1\n"
                                               "    process base            5.0        5.0\n"
                                               "    weights                25.0        5.0\n"
                                               "    total                  30.0       10.0\n"));
}

TEST(Report, SaysWhatMoreMicroBatchesWouldBuy) {
  const std::string now = "They wait 25.0 % of the step (the bubble).";
  Plan plan = three_block_plan();
  const auto text = [&] { return to_text(make_report(plan, three_blocks(), toy_placement(), {})); };
  EXPECT_THAT(text(), HasSubstr(now + "\n"));
  plan.more = {.batch = 8, .micro_batch = 1, .bubble = 0.125};
  EXPECT_THAT(text(), HasSubstr(now + " With this split a batch of 8 would lower that to 12.5 %; "
                                      "another may be better then.\n"));
  plan.more = {.batch = 4, .micro_batch = 2, .bubble = 0.125};
  EXPECT_THAT(text(), HasSubstr(now + " With this split micro-batches of 2 would lower that to "
                                      "12.5 %; another may be better then.\n"));
  plan.more.bubble = 0.25;
  EXPECT_THAT(text(), HasSubstr(now + "\n"));
}

TEST(Report, EachTextHoldsMoreThanTheOneBefore) {
  Plan plan = three_block_plan();
  plan.alternatives = {{.name = "on one device",
                        .how = "all of it",
                        .memory = {50 * kMib},
                        .device_memory = {40 * kMib},
                        .step = {500'000'000},
                        .exposed = {}}};
  const Report report = make_report(plan, three_blocks(), toy_placement(), {});
  EXPECT_THAT(balance_text(report), Not(HasSubstr("on one device")));
  EXPECT_THAT(summary_text(report),
              AllOf(HasSubstr("on one device"), HasSubstr("Nothing else fits: \"on one device\""),
                    Not(HasSubstr("static sum"))));
  EXPECT_THAT(to_text(report), AllOf(HasSubstr("on one device"), HasSubstr("static sum")));
}

TEST(Report, MeasurementsOfAnotherPlanAreRefused) {
  ReportOptions options;
  options.measured = toy_measured();
  options.measured->plan_hash = "other";
  const auto error = caught([&] { toy_report(options); });
  EXPECT_EQ(error.code, ExitCode::kPlanMismatch);
}

TEST(Report, PlanWithoutPredictionsIsRefusedWithTheNextStep) {
  Plan plan = three_block_plan();
  plan.ranks.clear();
  const auto error = caught([&] { make_report(plan, three_blocks(), toy_placement(), {}); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr("partition verify plan.yaml --cluster"));
}

TEST(Report, SeenMemoryOnOneDeviceGivesWhatDataParallelNeeds) {
  ReportOptions options;
  options.other.vae = 5 * kMib;
  options.seen_on_one_device = Bytes{39 * kMib + 900 * 1024};
  const std::string text = to_text(toy_report(options));
  EXPECT_THAT(text, HasSubstr("You saw 39.9 MiB on one device: 39.9 MiB fits 40.0 MiB (toy)."));
  EXPECT_THAT(text, HasSubstr("on every rank alike"));
}

TEST(Report, JsonHoldsTheNumbersOfTheText) {
  ReportOptions options;
  options.measured = toy_measured();
  const auto out = nlohmann::json::parse(to_json(toy_report(options)));
  EXPECT_EQ(out["ranks"][0]["predicted"]["memory"]["weights"], 25 * kMib);
  EXPECT_EQ(out["ranks"][0]["measured"]["peak_rss"], 60 * kMib);
  EXPECT_DOUBLE_EQ(out["ranks"][0]["ratio"]["weights"], 2.0);
  EXPECT_EQ(out["ranks"][1]["blocks"][0], "c");
  EXPECT_DOUBLE_EQ(out["balance"]["memory"], 1.5);
  EXPECT_EQ(out["done_right"]["data_parallel"], 37 * kMib);
  EXPECT_EQ(out["done_right"]["data_parallel_fits"], true);
}

TEST(Report, JsonHoldsFrontAlternativesAndBubbles) {
  Plan plan = three_block_plan();
  plan.front = {
      {.step = {400'000'000}, .peak = {30 * kMib}, .schedule = "1f1b", .is_chosen = true}};
  plan.alternatives = {{.name = "one device",
                        .how = "all of it",
                        .memory = {50 * kMib},
                        .device_memory = {40 * kMib},
                        .step = {500'000'000},
                        .exposed = {}}};
  ReportOptions options;
  options.bubbles = {{Nanos{50'000'000}, {}, {}, Nanos{50'000'000}},
                     {Nanos{200'000'000}, {}, Nanos{100'000'000}, {}}};
  const auto out =
      nlohmann::json::parse(to_json(make_report(plan, three_blocks(), toy_placement(), options)));
  EXPECT_EQ(out["front"][0]["peak"], 30 * kMib);
  EXPECT_EQ(out["front"][0]["is_chosen"], true);
  EXPECT_EQ(out["alternatives"][0]["fits"], false);
  EXPECT_DOUBLE_EQ(out["alternatives"][0]["step_seconds"], 0.5);
  EXPECT_DOUBLE_EQ(out["ranks"][1]["bubbles_seconds"]["communication"], 0.1);
  EXPECT_DOUBLE_EQ(out["ranks"][0]["bubbles_seconds"]["drain"], 0.05);
}

TEST(Measured, ReadsBackWhatItWrote) {
  TempFolder folder;
  write_measured(toy_measured(), folder.file("measured.json"));
  EXPECT_EQ(read_measured(folder.file("measured.json")), toy_measured());
}

TEST(Measured, OneByteTooManyIsInvalidData) {
  TempFolder folder;
  std::string text = to_json(toy_measured());
  text.resize(size_t{4} << 20, ' ');
  EXPECT_EQ(read_measured(folder.write("m.json", text)), toy_measured());
  const auto error = caught([&] { read_measured(folder.write("m.json", text + " ")); });
  EXPECT_EQ(error.code, ExitCode::kDataInvalid);
  EXPECT_THAT(error.message, HasSubstr("4194305 bytes, at most 4194304 are allowed"));
}

TEST(Measured, BrokenFileIsRefusedNamingTheKey) {
  TempFolder folder;
  std::string text = to_json(toy_measured());
  const std::string key = "\"base_rss\":6291456";
  text.replace(text.find(key), key.size(), "\"base_rss\":-1");
  const auto error = caught([&] { read_measured(folder.write("m.json", text)); });
  EXPECT_EQ(error.code, ExitCode::kDataInvalid);
  EXPECT_THAT(error.message, HasSubstr("m.json: `ranks[0].base_rss` must be a whole number"));
}

}  // namespace
}  // namespace stagecraft
