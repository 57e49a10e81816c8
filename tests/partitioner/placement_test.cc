#include "partitioner/graph/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// time (frozen, cheap) feeds encoder and decoder; control is read by zero (a side branch) and
// control2.
BlockGraph controlled() {
  return ToyGraph()
      .add("time", {"input.t"}, false)
      .add("encoder", {"input.x", "time"}, false)
      .add("control", {"input.x"}, true)
      .add("zero", {"control"}, true)
      .add("control2", {"control"}, true)
      .add("unused", {"control2"}, true)
      .add("join", {"encoder", "control2"}, false)
      .add("decoder", {"join", "zero", "time"}, false)
      .build("decoder");
}

Placement placed(std::vector<int> stages, std::vector<int> ranks) {
  Placement placement{.stage_of_block = std::move(stages), .rank_of_stage = std::move(ranks)};
  placement.recompute.assign(placement.stage_of_block.size(), false);
  return placement;
}

//                          time enc ctl zero ctl2 unused join dec
const Placement kGood = placed({-1, 0, 0, 0, 1, 0, 1, 2}, {0, 1, 2});

TEST(Placement, GoodPlacementHasNoFaults) {
  EXPECT_THAT(placement_faults(controlled(), kGood), IsEmpty());
}

TEST(Placement, RanksAreCountedFromTheirNumbers) {
  EXPECT_EQ(kGood.ranks(), 3);
  EXPECT_EQ(placed({}, {0, 1, 1, 0}).ranks(), 2);
}

TEST(Placement, ReplicatedBlockRunsOnEveryStageThatNeedsIt) {
  EXPECT_THAT(kGood.blocks_run_by(controlled(), 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(kGood.blocks_run_by(controlled(), 1), ElementsAre(4, 6));
  EXPECT_THAT(kGood.blocks_run_by(controlled(), 2), ElementsAre(0, 7));
}

TEST(Placement, BlockWithoutPathToTheLossIsOwnedButNotRun) {
  EXPECT_THAT(kGood.blocks_owned_by(controlled(), 0), ElementsAre(0, 1, 2, 3, 5));
}

TEST(Placement, ReplicatedBlockIsOwnedByTheFirstStageThatNeedsIt) {
  EXPECT_THAT(kGood.blocks_owned_by(controlled(), 2), ElementsAre(7));
  const Placement later = placed({-1, 1, 0, 0, 0, 0, 1, 2}, {0, 1, 2});
  EXPECT_THAT(later.blocks_owned_by(controlled(), 0), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(later.blocks_owned_by(controlled(), 1), ElementsAre(0, 1, 6));
}

TEST(Placement, ReplicatedChainRunsWhereItsEndIsNeeded) {
  const BlockGraph graph = ToyGraph()
                               .add("a", {"input.x"}, false)
                               .add("b", {"a"}, false)
                               .add("c", {"input.x"}, true)
                               .add("d", {"c", "b"}, true)
                               .build("d");
  const Placement placement = placed({-1, -1, 0, 1}, {0, 1});
  EXPECT_THAT(placement_faults(graph, placement), IsEmpty());
  EXPECT_THAT(placement.blocks_run_by(graph, 0), ElementsAre(2));
  EXPECT_THAT(placement.blocks_run_by(graph, 1), ElementsAre(0, 1, 3));
}

TEST(Placement, RefusesEdgeAgainstTheStageOrder) {
  Placement placement = kGood;
  placement.stage_of_block = {-1, 2, 0, 0, 1, 0, 1, 2};
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(AllOf(HasSubstr("join on stage 1"), HasSubstr("encoder"),
                                HasSubstr("later stage 2"))));
}

TEST(Placement, RefusesFoldAgainstTheSchedule) {
  Placement placement = kGood;  // zero stands before control2 and may not be on a later stage
  placement.stage_of_block = {-1, 0, 0, 2, 1, 0, 1, 2};
  EXPECT_THAT(
      placement_faults(controlled(), placement),
      ElementsAre(AllOf(HasSubstr("the gradient of control is summed from control2 (stage 1) "
                                  "to zero (stage 2)"),
                        HasSubstr("put zero on stage 1 or earlier"))));
}

TEST(Placement, FoldAlongTheScheduleIsAccepted) {
  Placement placement = kGood;
  placement.stage_of_block = {-1, 0, 0, 1, 1, 0, 1, 2};
  EXPECT_THAT(placement_faults(controlled(), placement), IsEmpty());
}

TEST(Placement, RefusesReplicatedBlockThatIsTrainableOrReadsAnotherStage) {
  Placement placement = kGood;
  placement.stage_of_block = {0, -1, -1, 0, 1, 0, 1, 2};
  const std::vector<std::string> faults = placement_faults(controlled(), placement);
  EXPECT_THAT(faults, Contains(HasSubstr("control is replicated but in state F+W")));
  EXPECT_THAT(faults, Contains(HasSubstr("encoder is replicated but reads time from stage 0")));
}

TEST(Placement, RefusesReplicatedBlockWithoutPathToTheLossThatIsTrainable) {
  Placement placement = kGood;
  placement.stage_of_block[5] = -1;
  EXPECT_THAT(placement_faults(controlled(), placement),
              Contains(HasSubstr("unused is replicated")));
}

TEST(Placement, RefusesStageWithoutABlockOfItsOwn) {
  Placement placement = kGood;
  placement.rank_of_stage = {0, 1, 2, 3};
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(HasSubstr("stage 3 runs no block")));
  placement.stage_of_block[5] = 3;  // a block that never runs does not fill a stage
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(HasSubstr("stage 3 runs no block")));
}

TEST(Placement, RefusesGapsInRanks) {
  Placement placement = kGood;
  placement.rank_of_stage = {0, 2, 2};
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(HasSubstr("rank 1 hosts no stage")));
  placement.rank_of_stage = {0, 1, 7};
  EXPECT_THAT(placement_faults(controlled(), placement), ElementsAre(HasSubstr("on rank 7")));
}

TEST(Placement, RefusesStageOutOfRangeAndWrongSizes) {
  Placement placement = kGood;
  placement.stage_of_block[1] = 3;
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(HasSubstr("encoder is on stage 3; stages are 0 to 2")));
  placement.stage_of_block.pop_back();
  placement.recompute.clear();
  EXPECT_THAT(placement_faults(controlled(), placement),
              ElementsAre(HasSubstr("7 blocks are placed"), HasSubstr("for 0 blocks")));
}

TEST(Placement, SeveralStagesOnOneRankAreAccepted) {
  Placement placement = kGood;
  placement.rank_of_stage = {0, 1, 0};
  EXPECT_THAT(placement_faults(controlled(), placement), IsEmpty());
}

}  // namespace
}  // namespace stagecraft
