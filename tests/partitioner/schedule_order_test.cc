// Orders that the generators make, and actions as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "partitioner/base/error.h"
#include "partitioner/schedule/schedule.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::chain_graph;
using testing::chain_placement;
using ::testing::HasSubstr;
using testing::text_of;

TEST(ScheduleOrder, OneForwardOneBackwardWarmsUpByDistanceToTheLastStage) {
  const BlockGraph graph = chain_graph(3);
  const auto order = generate_order("1f1b", graph, chain_placement(3), 4);
  EXPECT_EQ(text_of(order[0]), "F0.0 F0.1 F0.2 B0.0 F0.3 B0.1 B0.2 B0.3 step");
  EXPECT_EQ(text_of(order[1]), "F1.0 F1.1 B1.0 F1.2 B1.1 F1.3 B1.2 B1.3 step");
  EXPECT_EQ(text_of(order[2]), "F2.0 B2.0 F2.1 B2.1 F2.2 B2.2 F2.3 B2.3 step");
}

TEST(ScheduleOrder, FewerMicroBatchesThanStagesShortenTheWarmUp) {
  const auto order = generate_order("1f1b", chain_graph(4), chain_placement(4), 2);
  EXPECT_EQ(text_of(order[0]), "F0.0 F0.1 B0.0 B0.1 step");
  EXPECT_EQ(text_of(order[3]), "F3.0 B3.0 F3.1 B3.1 step");
}

TEST(ScheduleOrder, GpipeRunsAllForwardsFirstAndBackwardsAscending) {
  const auto order = generate_order("gpipe", chain_graph(2), chain_placement(2), 3);
  EXPECT_EQ(text_of(order[0]), "F0.0 F0.1 F0.2 B0.0 B0.1 B0.2 step");
  EXPECT_EQ(text_of(order[1]), "F1.0 F1.1 F1.2 B1.0 B1.1 B1.2 step");
}

TEST(ScheduleOrder, StageWithoutGradientsHasNoBackward) {
  const auto order =
      generate_order("1f1b", chain_graph(3, /*first_trainable=*/1), chain_placement(3), 2);
  EXPECT_EQ(text_of(order[0]), "F0.0 F0.1 step");
  EXPECT_EQ(text_of(order[1]), "F1.0 F1.1 B1.0 B1.1 step");
}

TEST(ScheduleOrder, StagesOfOneRankAreMergedByStartTime) {
  Placement placement = chain_placement(4);
  placement.rank_of_stage = {0, 1, 0, 1};
  const auto order = generate_order("gpipe", chain_graph(4), placement, 1);
  EXPECT_EQ(text_of(order[0]), "F0.0 F2.0 B2.0 B0.0 step");
  EXPECT_EQ(text_of(order[1]), "F1.0 F3.0 B3.0 B1.0 step");
}

TEST(ScheduleOrder, UnknownGeneratorIsRefusedWithTheNamesAllowed) {
  try {
    generate_order("zigzag", chain_graph(2), chain_placement(2), 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("zigzag"));
    EXPECT_THAT(error.what(), HasSubstr("1f1b, gpipe"));
  }
}

TEST(ScheduleOrder, OneForwardOneBackwardKeepsTheExpectedMicroBatchesInFlight) {
  for (int p = 1; p <= 8; ++p) {
    for (int m = 1; m <= 16; ++m) {
      const auto order = generate_order("1f1b", chain_graph(p), chain_placement(p), m);
      for (int s = 0; s < p; ++s) {
        int live = 0, most = 0;
        for (const Action& action : order[s]) {
          if (action.kind == ActionKind::kForward) most = std::max(most, ++live);
          if (action.kind == ActionKind::kBackward) --live;
        }
        EXPECT_EQ(most, std::min(m, p - s)) << "p " << p << " m " << m << " stage " << s;
        EXPECT_EQ(live, 0);
      }
    }
  }
}

TEST(ScheduleOrder, ActionsReadBackFromTheirText) {
  for (const char* text : {"F0.2", "B1.0", "I1.0", "W12.345", "S7", "R0", "step", "reduce"}) {
    EXPECT_EQ(to_string(parse_action(text)), text);
  }
}

TEST(ScheduleOrder, TextThatIsNoActionIsRefused) {
  for (const char* text : {"", "F", "F1", "F1.", "F.1", "F1.2x", "X1.2", "S", "S-1", "S1.2", "Step",
                           "F 1.2", "F+1.2", "F99999999999.0", "step "}) {
    EXPECT_THROW(parse_action(text), ConfigError) << text;
  }
}

TEST(ScheduleOrder, BatchSplitsIntoMicroBatchesWithASmallerLast) {
  EXPECT_EQ(micro_batch_sizes(7, 3), (std::vector<int64_t>{3, 3, 1}));
  EXPECT_EQ(micro_batch_sizes(4, 2), (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(micro_batch_sizes(1, 4), (std::vector<int64_t>{1}));
}

}  // namespace
}  // namespace stagecraft
