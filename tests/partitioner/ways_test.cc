// What is made of the other ways to train the same.
#include "partitioner/plan/ways.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stagecraft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int64_t kWayMib = 1 << 20;

Alternative way(const std::string& name, int64_t mib, int64_t ms, int64_t exposed_ms = 0) {
  return {.name = name,
          .how = "so",
          .memory = {mib * kWayMib},
          .device_memory = {100 * kWayMib},
          .step = {ms * 1'000'000},
          .exposed = {exposed_ms * 1'000'000}};
}

const Alternative kOurs = way("this plan: 4 stages", 40, 200);

TEST(Ways, AFasterOneThatFitsIsPreferred) {
  EXPECT_EQ(advise(kOurs, {way("slow", 50, 300), way("fast", 90, 150, 10)}),
            "\"fast\" fits (90.0 MiB of 100.0 MiB) and is 25.0 % faster: 150.0 ms a step against "
            "200.0 ms. Prefer it for this job; a pipeline is for smaller devices, larger pictures, "
            "slower links or smaller batches.");
}

TEST(Ways, TheNextFastestIsNamedWithWhatItWaitsFor) {
  EXPECT_EQ(advise(kOurs, {way("slow", 50, 300), way("next", 90, 250, 80)}),
            "Of the other ways that fit \"next\" is the fastest: it takes 25.0 % longer than this "
            "plan (250.0 ms a step against 200.0 ms), of which it waits 80.0 ms for the link.");
}

TEST(Ways, AFasterOneThatDoesNotFitIsNamedWithWhatItNeeds) {
  EXPECT_THAT(
      advise(kOurs, {way("next", 90, 250), way("large", 130, 100)}),
      HasSubstr(". \"large\" would be 50.0 % faster, but needs 130.0 MiB of 100.0 MiB, 30.0 "
                "MiB too much."));
  // What fits is faster still: the large one tempts nobody.
  EXPECT_THAT(advise(kOurs, {way("fast", 90, 90), way("large", 130, 100)}),
              Not(HasSubstr("\"large\"")));
}

TEST(Ways, WithinOnePercentIsAsFast) {
  EXPECT_THAT(advise(kOurs, {way("alike", 90, 202)}), HasSubstr("and is as fast: 202.0 ms"));
  EXPECT_THAT(advise(kOurs, {way("alike", 90, 198)}), HasSubstr("and is as fast: 198.0 ms"));
}

TEST(Ways, WhereNothingElseFitsTheLeanestIsNamed) {
  EXPECT_EQ(
      advise(kOurs, {way("fat", 300, 250), way("lean", 101, 500)}),
      "Nothing else fits: \"lean\", the leanest of the others, needs 101.0 MiB of 100.0 MiB.");
}

TEST(Ways, OneDeviceIsBeatenByOtherThanSlowLinks) {
  EXPECT_THAT(advise(kOurs, {way("one device", 90, 150)}),
              HasSubstr("larger pictures, faster links or larger batches."));
}

TEST(Ways, AnotherBatchIsShownButNotAdvised) {
  Alternative larger = way("larger batch", 30, 100);
  larger.other_batch = 16;
  EXPECT_EQ(advise(kOurs, {larger}), "");
  EXPECT_EQ(advise(kOurs, {larger, way("slow", 50, 300)}), advise(kOurs, {way("slow", 50, 300)}));
  EXPECT_THAT(ways_table(kOurs, {larger}), HasSubstr("100.0 ms            –  (16 samples)\n"));
}

TEST(Ways, WithoutOthersThereIsNothingToSay) { EXPECT_EQ(advise(kOurs, {}), ""); }

TEST(Ways, TableMarksWhatDoesNotFit) {
  const std::string table = ways_table(kOurs, {way("other", 101, 9, 1)});
  EXPECT_THAT(table, HasSubstr("    this plan: 4 stages                                  40.0"
                               "        100.0     200.0 ms            –\n"));
  EXPECT_THAT(table, HasSubstr("    other                                               101.0"
                               "        100.0       9.0 ms       1.0 ms  DOES NOT FIT\n"));
}

TEST(Ways, ThePlanCountsWithItsFullestRank) {
  Plan plan;
  plan.stages.resize(2);
  plan.predicted_step = {5};
  plan.ranks.resize(2);
  plan.ranks[0].memory[MemoryLine::kWeights] = {90};
  plan.ranks[0].device_memory = {200};
  plan.ranks[1].memory[MemoryLine::kWeights] = {80};
  plan.ranks[1].device_memory = {100};
  const Alternative ours = as_way(plan);
  EXPECT_THAT(ours.name, StartsWith("this plan: 2 stages"));
  EXPECT_EQ(ours.memory, Bytes{80});
  EXPECT_EQ(ours.device_memory, Bytes{100});
  EXPECT_EQ(ours.step, Nanos{5});
}

}  // namespace
}  // namespace stagecraft
