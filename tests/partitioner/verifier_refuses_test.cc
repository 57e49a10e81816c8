// Orders that are known to be bad, each with what the verifier says about it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "partitioner/schedule/verifier.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"

namespace stagecraft {
namespace {

using testing::actions_of;
using testing::add_opaque_block;
using ::testing::AllOf;
using testing::chain_graph;
using testing::chain_placement;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::vector<std::string> faults_of(const BlockGraph& graph, const std::vector<std::string>& lists,
                                   int micro_batches) {
  const Placement placement = chain_placement(static_cast<int>(lists.size()));
  const std::vector<int64_t> sizes(micro_batches, 1);
  std::vector<std::vector<Action>> order;
  for (const std::string& list : lists) order.push_back(actions_of(list));
  return verify(graph, placement, sizes, complete_order(graph, placement, order, sizes));
}

// Each compute action with what it needs received right before it and what it makes sent right
// after it.
Schedule phase_order(const BlockGraph& graph, const Placement& placement, const char* generator,
                     const std::vector<int64_t>& sizes) {
  const auto compute = generate_order(generator, graph, placement, static_cast<int>(sizes.size()));
  const std::vector<Message> table = message_table(graph, placement, sizes);
  std::vector<std::vector<Action>> order(compute.size());
  for (size_t r = 0; r < compute.size(); ++r) {
    for (const Action& action : compute[r]) {
      auto add = [&](ActionKind kind) {
        for (int id = 0; id < static_cast<int>(table.size()); ++id) {
          const Message& m = table[id];
          const bool same_phase =
              (m.direction == Direction::kForward) == (action.kind == ActionKind::kForward);
          const int stage = kind == ActionKind::kSend ? m.src_stage : m.dst_stage;
          if (same_phase && stage == action.stage && m.micro_batch == action.micro_batch) {
            order[r].push_back({.kind = kind, .message = id});
          }
        }
      };
      if (action.kind != ActionKind::kStep) add(ActionKind::kReceive);
      order[r].push_back(action);
      if (action.kind != ActionKind::kStep) add(ActionKind::kSend);
    }
  }
  return complete_order(graph, placement, order, sizes);
}

TEST(VerifierRefuses, PlainUnfusedOneForwardOneBackward) {
  for (int p = 2; p <= 6; ++p) {
    for (int m = 2; m <= 8; ++m) {
      const BlockGraph graph = chain_graph(p);
      const std::vector<int64_t> sizes(m, 1);
      const Schedule schedule = phase_order(graph, chain_placement(p), "1f1b", sizes);
      const auto faults = verify(graph, chain_placement(p), sizes, schedule);
      EXPECT_THAT(faults, SizeIs(3)) << "p " << p << " m " << m;
      EXPECT_THAT(faults, Each(HasSubstr("deadlock")));
    }
  }
}

TEST(VerifierRefuses, DeadlockNamesTheWaitForCycle) {
  const Schedule schedule = phase_order(chain_graph(2), chain_placement(2), "1f1b", {1, 1});
  EXPECT_THAT(
      verify(chain_graph(2), chain_placement(2), {1, 1}, schedule),
      Contains(HasSubstr("rank 0 waits at S2 for rank 1 (R2), which waits at S1 for rank 0 (R1)")));
}

// Message numbers of a -> b -> c with the skip a -> c, one micro-batch:
// 0: a to rank 1, 1: a to rank 2, 2: b to rank 2, 3: gradient of a to rank 0, 4: gradients of a and
// b to rank 1.
BlockGraph skip_graph() {
  BlockGraph graph = testing::empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {b, a}, true);
  derive_states(graph);
  return graph;
}

std::vector<std::string> grouped_faults(const std::vector<std::pair<int, int>>& rank_and_message) {
  const Placement placement = chain_placement(3);
  Schedule schedule = complete_order(
      skip_graph(), placement,
      {actions_of("F0.0 S0 S1 R3 B0.0 step"), actions_of("R0 F1.0 S2 R4 B1.0 S3 step"),
       actions_of("R1 R2 F2.0 B2.0 S4 step")},
      {1});
  for (auto [rank, message] : rank_and_message) {
    for (Action& action : schedule.ranks[rank]) {
      if (action.message == message) action.group = 1;
    }
  }
  return verify(skip_graph(), placement, {1}, schedule);
}

TEST(VerifierRefuses, OneBatchAcrossPeersWithASkip) {
  const auto faults = grouped_faults({{0, 0}, {0, 1}, {2, 1}, {2, 2}});
  EXPECT_THAT(faults,
              ElementsAre(HasSubstr(
                  "groups starting as one: rank 0 waits at S1 for rank 2 (R1), which waits at "
                  "R2 for rank 1 (S2), which waits at R0 for rank 0 (S0)")))
      << "only the machine that starts a group as one is stuck";
}

TEST(VerifierRefuses, NotTheSameMessagesWithOnePeerAGroup) {
  EXPECT_THAT(grouped_faults({}), IsEmpty());
}

std::vector<std::string> pair_faults(const std::string& first, const std::string& second,
                                     std::vector<int> grouped) {
  Schedule schedule = complete_order(chain_graph(2), chain_placement(2),
                                     {actions_of(first), actions_of(second)}, {1});
  for (Action& action : schedule.ranks[0]) {
    if (std::find(grouped.begin(), grouped.end(), action.message) != grouped.end())
      action.group = 7;
  }
  return verify(chain_graph(2), chain_placement(2), {1}, schedule);
}

TEST(VerifierRefuses, ReceiveGroupedWithASendThatItsPeerMustTakeFirst) {
  EXPECT_THAT(pair_faults("F0.0 S0 R1 B0.0 step", "R0 F1.0 B1.0 S1 step", {0, 1}),
              ElementsAre(HasSubstr("groups starting as one")));
}

TEST(VerifierRefuses, ReceiveBeforeTheSendItDependsOn) {
  EXPECT_THAT(pair_faults("F0.0 R1 S0 B0.0 step", "R0 F1.0 B1.0 S1 step", {}),
              AllOf(SizeIs(3), Each(HasSubstr("deadlock"))));
}

TEST(VerifierRefuses, TheSameAsAGroupOnlyWhereGroupsAreIndependent) {
  EXPECT_THAT(pair_faults("F0.0 R1 S0 B0.0 step", "R0 F1.0 B1.0 S1 step", {0, 1}), SizeIs(2));
}

// Two micro-batches, two stages: 0 F0, 1 B0, 2 F1, 3 B1.
const char* const kGood0 = "F0.0 S0 F0.1 S2 R1 B0.0 R3 B0.1 step";
const char* const kGood1 = "R0 F1.0 R2 F1.1 B1.0 S1 B1.1 S3 step";

TEST(VerifierRefuses, NothingInAGoodSchedule) {
  EXPECT_THAT(faults_of(chain_graph(2), {kGood0, kGood1}, 2), IsEmpty());
}

TEST(VerifierRefuses, GpipeWithMessagesSwappedOnOneSide) {
  EXPECT_THAT(faults_of(chain_graph(2), {"F0.0 F0.1 S2 S0 R1 B0.0 R3 B0.1 step", kGood1}, 2),
              Contains(HasSubstr("rank 0 sends S2 to rank 1 where it receives R0")));
}

TEST(VerifierRefuses, ForwardAfterItsBackward) {
  EXPECT_THAT(faults_of(chain_graph(1), {"B0.0 F0.0 step"}, 1),
              ElementsAre(HasSubstr("B0.0 needs F0.0")));
}

TEST(VerifierRefuses, UseBeforeTheReceive) {
  EXPECT_THAT(faults_of(chain_graph(2), {kGood0, "R0 F1.0 F1.1 R2 B1.0 S1 B1.1 S3 step"}, 2),
              Contains(HasSubstr("F1.1 needs block0 of stage 0, which is not received")));
}

TEST(VerifierRefuses, SendBeforeTheCompute) {
  EXPECT_THAT(faults_of(chain_graph(2), {"S0 F0.0 F0.1 S2 R1 B0.0 R3 B0.1 step", kGood1}, 2),
              Contains(HasSubstr("S0 sends what F0.0 has not computed")));
}

TEST(VerifierRefuses, BackwardsOutOfOrder) {
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 F0.1 B0.1 B0.0 step"}, 2),
              ElementsAre(HasSubstr("ascending micro-batch")));
}

TEST(VerifierRefuses, WeightGradientsBehindThoseOfALaterMicroBatch) {
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 F0.1 I0.0 B0.1 W0.0 step"}, 2),
              ElementsAre(HasSubstr("W0.0 stands after B0.1")));
}

TEST(VerifierRefuses, OptimizerStepThatIsNotLast) {
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 step B0.0"}, 1),
              ElementsAre(HasSubstr("B0.0 stands after the optimizer step")));
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 B0.0"}, 1),
              ElementsAre(HasSubstr("0 optimizer steps")));
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 B0.0 step step"}, 1),
              ElementsAre(HasSubstr("2 optimizer steps")));
}

TEST(VerifierRefuses, BackwardOfAStageWithoutGradients) {
  EXPECT_THAT(faults_of(chain_graph(2, 1), {"F0.0 S0 B0.0 step", "R0 F1.0 B1.0 step"}, 1),
              ElementsAre(HasSubstr("B0.0 must not run: stage 0 has no gradients")));
}

TEST(VerifierRefuses, WholeAndSplitBackwardOfOneMicroBatch) {
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 B0.0 I0.0 W0.0 step"}, 1),
              Contains(HasSubstr("not both")));
}

TEST(VerifierRefuses, ActionOnTheWrongRank) {
  EXPECT_THAT(faults_of(chain_graph(2), {"F0.0 S0 R1 B0.0 F1.0 step", "R0 B1.0 S1 step"}, 1),
              Contains(HasSubstr("rank 0: F1.0 belongs to rank 1")));
}

TEST(VerifierRefuses, StageOrMicroBatchThatDoesNotExist) {
  EXPECT_THAT(faults_of(chain_graph(1), {"F0.0 B0.0 F1.0 F0.5 step"}, 1), SizeIs(2));
}

TEST(VerifierRefuses, FrozenWorkOfTheNextStepForNow) {
  Schedule schedule =
      complete_order(chain_graph(1), chain_placement(1), {actions_of("F0.0 B0.0 step")}, {1});
  schedule.ranks[0][0].step_offset = 1;
  EXPECT_THAT(verify(chain_graph(1), chain_placement(1), {1}, schedule), Not(IsEmpty()));
}

TEST(VerifierRefuses, TableThatDiffersFromTheDerivedOne) {
  Schedule schedule =
      complete_order(chain_graph(2), chain_placement(2),
                     {actions_of("F0.0 S0 R1 B0.0 step"), actions_of("R0 F1.0 B1.0 S1 step")}, {1});
  schedule.messages[0].bytes.count = 104;
  EXPECT_THAT(verify(chain_graph(2), chain_placement(2), {1}, schedule),
              ElementsAre(AllOf(HasSubstr("message 0"), HasSubstr("104 bytes"),
                                HasSubstr("100 bytes"), HasSubstr("block0 (fp32)"))));
}

}  // namespace
}  // namespace stagecraft
