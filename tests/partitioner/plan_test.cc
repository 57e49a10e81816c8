#include "partitioner/plan/plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "partitioner/base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/known_keys.h"
#include "tests/support/temp_folder.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// a -> b -> c -> d -> e with a skip b -> e; a is frozen, `time` is a frozen branch that c and d
// read.
BlockGraph toy() {
  return ToyGraph()
      .add("time", {"input.t"}, false)
      .add("a", {"input.x"}, false)
      .add("b", {"a"}, true)
      .add("c", {"b", "time"}, true)
      .add("d", {"c", "time"}, true)
      .add("e", {"d", "b"}, true)
      .build("e");
}

Plan toy_plan() {
  const BlockGraph graph = toy();
  Plan plan;
  plan.train.model = "/models/toy.yaml";
  plan.train.width = plan.train.height = 64;
  plan.train.batch = 4;
  plan.graph_hash = graph_hash(graph);
  plan.cluster = "two";
  plan.stages = {{.rank = 0, .blocks = {"a", "b"}}, {.rank = 1, .blocks = {"c", "d", "e"}}};
  plan.replicated = {"time"};
  plan.recompute = {"d"};
  plan.cost_table = "analytic: for \"toy\"";
  plan.predicted_step = {12'345'678};
  plan.predicted_bubble = 0.125;
  for (int r = 0; r < 2; ++r) {
    PlannedRank rank{.device = "cpu", .device_memory = {1 << 30}, .busy = {1000 + r}, .memory = {}};
    for (int line = 0; line < kMemoryLines; ++line) {
      rank.memory[static_cast<MemoryLine>(line)] = {1000 * r + line};
    }
    plan.ranks.push_back(rank);
  }
  plan.one_device = plan.ranks[0];
  plan.one_device.busy = {123};
  plan.data_parallel = plan.ranks[1];
  plan.data_parallel.busy = {456};
  plan.more = {.batch = 8, .micro_batch = 1, .bubble = 0.0625};
  plan.front = {{.step = {12'345'678},
                 .peak = {1045},
                 .replicas = 2,
                 .stages = 2,
                 .micro_batch = 1,
                 .schedule = "1f1b",
                 .recomputed = 1,
                 .is_chosen = true},
                {.step = {20'000'000}, .peak = {900}, .schedule = "gpipe", .relays = true}};
  plan.alternatives = {{.name = "one device, done right",
                        .how = "frozen weights \"in half\": 4 samples",
                        .memory = {2000},
                        .device_memory = {1 << 30},
                        .step = {123},
                        .exposed = {}},
                       {.name = "2 replicas of 2 stages",
                        .how = "2 samples on each replica",
                        .memory = {1000},
                        .device_memory = {999},
                        .step = {100},
                        .exposed = {45},
                        .other_batch = 16}};
  Placement placement;
  placement.stage_of_block = {-1, 0, 0, 1, 1, 1};
  placement.rank_of_stage = {0, 1};
  placement.recompute.assign(6, false);
  plan.messages = transfers_of_micro_batch(graph, placement, 1);
  return plan;
}

std::string toy_text() { return to_yaml(toy_plan(), toy()); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << "\n" << text;
  return text.replace(at, from.size(), to);
}

// As a person would leave it after moving blocks.
std::string without_derived(const std::string& text) {
  return text.substr(0, text.find("\npredicted:"));
}

Plan read_text(const std::string& text) {
  TempFolder folder;
  return read_plan(folder.write("plan.yaml", text));
}

CaughtError refused(const std::string& text) {
  TempFolder folder;
  const std::string path = folder.write("plan.yaml", text);
  CaughtError error = caught([&] { resolve_plan(read_plan(path), toy(), path); });
  for (size_t at; (at = error.message.find(path)) != std::string::npos;) {
    error.message.replace(at, path.size(), "plan.yaml");
  }
  return error;
}

// "plan.yaml:<line>:<column>" of the first place where `needle` stands in `text`.
std::string position(const std::string& text, const std::string& needle) {
  const size_t at = text.find(needle);
  EXPECT_NE(at, std::string::npos) << needle;
  const std::string before = text.substr(0, at);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const auto column =
      at - (before.rfind('\n') == std::string::npos ? 0 : before.rfind('\n') + 1) + 1;
  return "plan.yaml:" + std::to_string(line) + ":" + std::to_string(column) + ": ";
}

TEST(Plan, ReadsBackWhatItWrote) { EXPECT_EQ(read_text(toy_text()), toy_plan()); }

TEST(Plan, ReadsBackThatValuesAreRelayed) {
  Plan plan = toy_plan();
  plan.relays = true;
  const std::string text = to_yaml(plan, toy());
  EXPECT_THAT(text, HasSubstr("\ntransfers: relayed\n"));
  EXPECT_EQ(read_text(text), plan);
  EXPECT_NE(plan_hash(plan), plan_hash(toy_plan()));
  EXPECT_THAT(refused(replaced(text, "transfers: relayed", "transfers: forwarded")).message,
              HasSubstr(position(text, "relayed\n")));
  TempFolder folder;
  const std::string path = folder.write("plan.yaml", text);
  EXPECT_TRUE(resolve_plan(read_plan(path), toy(), path).placement.relays);
}

TEST(Plan, StagesThatShareARankDoNotRelay) {
  Plan plan = toy_plan();
  plan.relays = true;
  plan.stages[1].rank = 0;
  EXPECT_THAT(refused(without_derived(to_yaml(plan, toy()))).message,
              HasSubstr("transfers are relayed, but 2 stages share 1 rank: "));
}

TEST(Plan, ReadsBackWithAnExplicitOrder) {
  Plan plan = toy_plan();
  plan.schedule = "explicit";
  plan.order = {{"F0.0", "B0.0"}, {"F1.0", "B1.0"}};
  EXPECT_EQ(read_text(to_yaml(plan, toy())), plan);
}

TEST(Plan, ReadsBackWithoutPredictionsAndMessages) {
  Plan plan = toy_plan();
  plan.ranks.clear();
  plan.messages.clear();
  plan.replicated.clear();
  plan.recompute.clear();
  plan.cost_table.clear();
  plan.predicted_step = {};
  plan.predicted_bubble = 0;
  plan.one_device = {};
  plan.data_parallel = {};
  plan.more = {};
  plan.front.clear();
  plan.alternatives.clear();
  EXPECT_EQ(read_text(to_yaml(plan, toy())), plan);
}

TEST(Plan, WhatThePlannerSawBesideMayBeMissing) {
  Plan plan = toy_plan();
  plan.more = {};
  plan.front.clear();
  plan.alternatives.clear();
  const std::string text = to_yaml(plan, toy());
  for (const char* key : {"more_micro_batches", "front", "alternatives"}) {
    EXPECT_EQ(text.find(key), std::string::npos) << key;
  }
  EXPECT_EQ(read_text(text), plan);
}

TEST(Plan, AnAlternativeThatIsNoneIsNamedWithItsPlace) {
  const std::string bad = replaced(toy_text(), "exposed_ns: 45", "exposed: 45");
  EXPECT_THAT(refused(bad).message,
              AllOf(HasSubstr("key `predicted.alternatives[1].exposed_ns` is missing"),
                    HasSubstr(position(bad, "exposed: 45"))));
}

TEST(Plan, ModelPathStaysValidWhereverThePlanIsWritten) {
  TempFolder folder;
  Plan plan = toy_plan();
  plan.train.model = folder.write("models/toy.yaml", "name: toy\n");
  std::filesystem::create_directories(folder.path() / "runs");
  write_plan(plan, toy(), folder.file("runs/plan.yaml"));
  EXPECT_THAT(read_file(folder.file("runs/plan.yaml"), 1 << 20),
              HasSubstr("model: \"../models/toy.yaml\""));
  EXPECT_EQ(read_plan(folder.file("runs/plan.yaml")), plan);
}

TEST(Plan, ResolvesToPlacementAndSchedule) {
  TempFolder folder;
  const std::string path = folder.write("plan.yaml", toy_text());
  const ResolvedPlan resolved = resolve_plan(read_plan(path), toy(), path);
  EXPECT_EQ(resolved.placement.stage_of_block, (std::vector<int>{-1, 0, 0, 1, 1, 1}));
  EXPECT_EQ(resolved.placement.rank_of_stage, (std::vector<int>{0, 1}));
  EXPECT_TRUE(resolved.placement.recompute[4]);
  EXPECT_EQ(resolved.micro_batch_sizes, (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_EQ(resolved.schedule.ranks.size(), 2u);
}

TEST(Plan, ResolvesWithoutAFile) {
  EXPECT_NO_THROW(resolve_plan(toy_plan(), toy(), "not-written.yaml"));
}

TEST(Plan, HandEditedStagesResolve) {
  TempFolder folder;
  const std::string edited = replaced(replaced(without_derived(toy_text()), "      - c\n", ""),
                                      "      - b\n", "      - c\n      - b\n");
  const std::string path = folder.write("plan.yaml", edited);
  EXPECT_EQ(resolve_plan(read_plan(path), toy(), path).placement.stage_of_block,
            (std::vector<int>{-1, 0, 0, 0, 1, 1}));
}

TEST(PlanFault, UnknownBlockIsNamedWithTheNearest) {
  BlockGraph graph = toy();
  const std::string text = replaced(toy_text(), "      - c\n", "      - tim\n");
  const auto error = refused(text);
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, AllOf(HasSubstr(position(text, "tim\n") +
                                             "the model has no block tim, did you mean time?"),
                                   HasSubstr(position(text, "stages:") +
                                             "block c is on no stage; it stands between b and d")));
}

TEST(PlanFault, DuplicateBlockIsNamedWithItsFirstLine) {
  const std::string text = replaced(toy_text(), "      - d\n", "      - d\n      - a\n");
  const auto error = refused(text);
  EXPECT_THAT(error.message, HasSubstr(": block a is placed twice, first in line "));
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
}

TEST(PlanFault, PlacedAndReplicatedIsADuplicate) {
  const std::string text = replaced(toy_text(), "  - time\n", "  - time\n  - a\n");
  EXPECT_THAT(refused(text).message, HasSubstr("block a is placed twice"));
}

TEST(PlanFault, MissingBlocksAreAllNamed) {
  const std::string text = replaced(replaced(toy_text(), "      - c\n", ""), "      - b\n", "");
  const std::string message = refused(text).message;
  EXPECT_THAT(message, HasSubstr("block b is on no stage"));
  EXPECT_THAT(message, HasSubstr("block c is on no stage"));
}

TEST(PlanFault, OfManyMissingBlocksTheFirstAreNamed) {
  std::string text = replaced(toy_text(), "  - time\n", "  - notime\n");
  for (const char block : {'a', 'b', 'c', 'd', 'e'})
    text = replaced(text, fmt::format("      - {}\n", block), fmt::format("      - no{}\n", block));
  const std::string message = refused(text).message;
  EXPECT_EQ(std::ranges::count(message, '\n'), 6 + 5 + 1 - 1) << message;
  EXPECT_THAT(message, HasSubstr("block d is on no stage"));
  EXPECT_THAT(message, HasSubstr("1 more block is on no stage; is the file cut short?"));
}

TEST(PlanFault, EdgeAgainstTheStageOrderIsNamedAtTheBlock) {
  // c moves before its producer b: stages 0 [a, c], 1 [b, d, e].
  std::string text = replaced(toy_text(), "      - b\n", "      - TEMP\n");
  text = replaced(text, "      - c\n", "      - b\n");
  text = replaced(text, "TEMP", "c");
  const auto error = refused(text);
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr(position(text, "c\n  # stage 1") +
                                       "c on stage 0 reads b, which is on the later stage 1"));
}

TEST(PlanFault, SwappedStagesAreRefused) {
  Plan plan = toy_plan();
  std::swap(plan.stages[0].blocks, plan.stages[1].blocks);
  plan.messages.clear();
  const auto error = refused(to_yaml(plan, toy()));
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr("c on stage 0 reads b, which is on the later stage 1"));
  EXPECT_THAT(error.message, HasSubstr("e on stage 0 reads b"));
}

TEST(PlanFault, EmptyStageIsRefused) {
  const std::string text =
      replaced(toy_text(), "  - rank: 1\n", "  - rank: 1\n    blocks: []\n  - rank: 1\n");
  EXPECT_THAT(refused(text).message, HasSubstr("stage 1 is empty; delete it or move blocks here"));
}

TEST(PlanFault, UnusedRankIsRefused) {
  std::string text = replaced(without_derived(toy_text()), "- rank: 1", "- rank: 2");
  EXPECT_EQ(refused(text).code, ExitCode::kConfigInvalid);
}

TEST(PlanFault, TrainableBlockCannotBeReplicated) {
  std::string text = replaced(without_derived(toy_text()), "      - e\n", "");
  text = replaced(text, "  - time\n", "  - time\n  - e\n");
  const auto error = refused(text);
  EXPECT_THAT(error.message, HasSubstr(position(text, "e\n# Blocks") + "e is replicated"));
}

TEST(PlanFault, StaleMessageTableIsRefusedWithAdvice) {
  const std::string text = replaced(toy_text(), "to: 1, bytes: ", "to: 1, bytes: 1");
  const auto error = refused(text);
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr(position(text, "{direction")));
  EXPECT_THAT(error.message, HasSubstr("delete `messages` to have it derived"));
}

TEST(PlanFault, AnotherGraphIsAMismatch) {
  const std::string hash = graph_hash(toy());
  const std::string text = replaced(toy_text(), hash, std::string(64, 'a'));
  const auto error = refused(text);
  EXPECT_EQ(error.code, ExitCode::kPlanMismatch);
  EXPECT_THAT(error.message,
              HasSubstr(position(text, "graph_hash") + "the plan was made for another model"));
}

std::string with_order(const std::string& lines) {
  return replaced(without_derived(replaced(toy_text(), "batch: 4", "batch: 1")), "schedule: 1f1b\n",
                  "schedule: explicit\norder:\n" + lines);
}

TEST(PlanFault, OrderThatCannotRunIsRefusedAtTheOrder) {
  const std::string text = with_order("  - \"B0.0 F0.0 step\"\n  - \"F1.0 B1.0 step\"\n");
  const auto error = refused(text);
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr(position(text, "order:\n")));
}

TEST(PlanFault, UnreadableActionIsNamedWithItsRank) {
  const std::string text = with_order("  - \"F0.0 B0.0 step\"\n  - \"F1.0 X1.0 step\"\n");
  EXPECT_THAT(refused(text).message,
              HasSubstr(position(text, "\"F1.0 X") + "rank 1: \"X1.0\" is no action"));
}

TEST(PlanFault, ExplicitOrderThatRunsIsAccepted) {
  TempFolder folder;
  const std::string path =
      folder.write("plan.yaml", with_order("  - \"F0.0 B0.0 step\"\n  - \"F1.0 B1.0 step\"\n"));
  EXPECT_NO_THROW(resolve_plan(read_plan(path), toy(), path));
}

TEST(PlanFault, ExplicitOrderWithItsMessagesIsTakenAsItIs) {
  TempFolder folder;
  const std::string path = folder.write(
      "plan.yaml", with_order("  - \"F0.0 S0 R1 B0.0 step\"\n  - \"R0 F1.0 B1.0 S1 step\"\n"));
  const ResolvedPlan resolved = resolve_plan(read_plan(path), toy(), path);
  ASSERT_EQ(resolved.schedule.ranks[0].size(), 5u);
  EXPECT_EQ(to_string(resolved.schedule.ranks[0][2]), "R1");
  EXPECT_EQ(to_string(resolved.schedule.ranks[1][3]), "S1");
}

TEST(PlanFault, ExplicitMessagesThatCannotRunAreRefusedAtTheOrder) {
  const std::string late =
      with_order("  - \"F0.0 S0 R1 B0.0 step\"\n  - \"F1.0 R0 B1.0 S1 step\"\n");
  EXPECT_EQ(refused(late).code, ExitCode::kConfigInvalid);
  EXPECT_THAT(refused(late).message,
              HasSubstr(position(late, "order:\n") + "rank 1: F1.0 needs b of stage 0, which is "
                                                     "not received before it"));
  EXPECT_THAT(
      refused(with_order("  - \"F0.0 S0 B0.0 step\"\n  - \"R0 F1.0 B1.0 S1 step\"\n")).message,
      HasSubstr("message 1 is sent 1 times and received 0 times"));
  EXPECT_THAT(
      refused(with_order("  - \"F0.0 S9 R1 B0.0 step\"\n  - \"R0 F1.0 B1.0 S1 step\"\n")).message,
      HasSubstr("S9 names message 9, but the plan has 2 messages"));
}

struct Edit {
  const char* name;
  const char* from;
  const char* to;
  const char* expected;
};

class PlanFileFault : public ::testing::TestWithParam<Edit> {};

TEST_P(PlanFileFault, IsRefused) {
  const auto error = refused(replaced(toy_text(), GetParam().from, GetParam().to));
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_THAT(error.message, HasSubstr(GetParam().expected));
}

const Edit kEdits[] = {
    {"version", "version: 1", "version: 2",
     "this is a version 2 plan, this program reads version 1"},
    {"no_version", "version: 1\n", "", "key `version` is missing"},
    {"unknown_key", "cluster:", "clusters:", "unknown key `clusters`, did you mean `cluster`?"},
    {"unknown_stage_key", "    blocks:", "    block:", "unknown key `stages[0].block`"},
    {"schedule", "schedule: 1f1b", "schedule: zero", "schedule must be one of"},
    {"explicit_without_order", "schedule: 1f1b", "schedule: explicit", "`order` is missing"},
    {"micro_batch_zero", "micro_batch: 1", "micro_batch: 0",
     "train.micro_batch is out of range: `0`"},
    {"micro_batch_float", "micro_batch: 1", "micro_batch: 4.0",
     "train.micro_batch must be a whole number"},
    {"micro_batch_above_batch", "micro_batch: 1", "micro_batch: 5",
     "micro_batch 5 is larger than batch 4"},
    {"replicas", "replicas: 1", "replicas: 2", "replicas is out of range: `2`, allowed is 1 to 1"},
    {"rank", "rank: 1", "rank: 4096",
     "stages[1].rank is out of range: `4096`, allowed is 0 to 4095"},
    {"hash", "graph_hash: ", "graph_hash: x", "graph_hash must be 64 hexadecimal digits"},
    {"no_stages", "\nstages:", "\nstages: []\nold:", "stages has 0 entries"},
    {"bytes", "bytes: ", "bytes: -", "messages[0].bytes is out of range"},
    {"message_stage", "to: 1", "to: 2", "messages[0].to is out of range: `2`, allowed is 0 to 1"},
    {"memory_line", "        weights:", "        weight:",
     "unknown key `predicted.ranks[0].memory.weight`, did you mean `weights`?"},
    {"block_is_number", "      - a\n", "      - 7\n",
     "stages[0].blocks[0] must be a text, got `7`"},
    {"recompute", "recompute:\n  - d", "recompute:\n  - x", "the model has no block x"},
};
INSTANTIATE_TEST_SUITE_P(Table, PlanFileFault, ::testing::ValuesIn(kEdits),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Plan, EveryKeyIsDocumented) {
  std::string text = "zzz: 1\nversion: 1\n";
  text += "train: {zzz: 1, trainable: {zzz: 1}}\nstages: [{zzz: 1}]\nmessages: [{zzz: 1}]\n";
  text += "predicted: {zzz: 1, ranks: [{zzz: 1, memory: {zzz: 1}}], data_parallel: {zzz: 1}, ";
  text += "more_micro_batches: {zzz: 1}, front: [{zzz: 1}], alternatives: [{zzz: 1}]}\n";
  const auto keys = known_keys(refused(text).message);
  EXPECT_GE(keys.size(), 60u);
  const std::string page = read_file(STAGECRAFT_SOURCE_DIR "/docs/plan-file.md", 1 << 20);
  for (const auto& key : keys) EXPECT_THAT(page, HasSubstr("`" + key + "`"));
}

TEST(PlanHash, ChangesWithWhatRanksMustAgreeOnAndOnlyThat) {
  const Plan plan = toy_plan();
  Plan other = plan;
  other.predicted_step = {};
  other.ranks.clear();
  other.train.model = "/elsewhere.yaml";
  other.train.steps = 7;
  EXPECT_EQ(plan_hash(plan), plan_hash(other));
  for (const auto change : std::vector<void (*)(Plan&)>{
           [](Plan& p) { p.stages[0].blocks.push_back("x"); },
           [](Plan& p) { p.stages[1].rank = 0; }, [](Plan& p) { p.schedule = "gpipe"; },
           [](Plan& p) { p.order = {{"F0.0"}}; }, [](Plan& p) { p.replicated.clear(); },
           [](Plan& p) { p.recompute.clear(); }, [](Plan& p) { p.train.micro_batch = 2; },
           [](Plan& p) { p.train.precision = "fp16"; }, [](Plan& p) { p.graph_hash[0] ^= 1; }}) {
    Plan changed = plan;
    change(changed);
    EXPECT_NE(plan_hash(plan), plan_hash(changed));
  }
}

}  // namespace
}  // namespace stagecraft
