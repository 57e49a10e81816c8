// Which values travel between ranks, and where their messages stand in the lists.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <string>
#include <tuple>

#include "partitioner/base/error.h"
#include "partitioner/schedule/flow.h"
#include "partitioner/schedule/schedule.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::add_opaque_block;
using testing::chain_graph;
using testing::chain_placement;
using ::testing::ElementsAre;
using testing::empty_graph;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::text_of;

// "F 0->r1 (s1): 1 2" for the messages of one micro-batch.
std::vector<std::string> lines_of(const std::vector<Message>& messages) {
  std::vector<std::string> lines;
  for (const Message& m : messages) {
    std::ostringstream line;
    line << (m.direction == Direction::kForward ? "F " : "B ") << m.src_stage << "->r" << m.dst_rank
         << " (s" << m.dst_stage << "):";
    for (const MessageItem& item : m.items) line << ' ' << item.value;
    lines.push_back(line.str());
  }
  return lines;
}

TEST(MessagesTable, ChainSendsEachValueOnAndEachGradientBack) {
  EXPECT_THAT(
      lines_of(transfers_of_micro_batch(chain_graph(3), chain_placement(3), 1)),
      ElementsAre("F 0->r1 (s1): 1", "F 1->r2 (s2): 2", "B 1->r0 (s0): 1", "B 2->r1 (s1): 2"));
}

TEST(MessagesTable, NoGradientGoesToAFrozenProducer) {
  EXPECT_THAT(lines_of(transfers_of_micro_batch(chain_graph(3, 2), chain_placement(3), 1)),
              ElementsAre("F 0->r1 (s1): 1", "F 1->r2 (s2): 2"));
}

TEST(MessagesTable, BytesScaleWithSamples) {
  EXPECT_EQ(transfers_of_micro_batch(chain_graph(2), chain_placement(2), 3)[0].bytes.count, 300);
}

// Value 0 of the design: read on stages 1 and 3 sends forward 0->1 and 0->3, but its gradient goes
// 3->1->0.
TEST(MessagesTable, GradientOfASkipFoldsThroughItsConsumersLastFirst) {
  BlockGraph graph = empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  const int c = add_opaque_block(graph, {b}, true);
  graph.output = add_opaque_block(graph, {c, a}, true);
  derive_states(graph);
  EXPECT_THAT(
      lines_of(transfers_of_micro_batch(graph, chain_placement(4), 1)),
      ElementsAre("F 0->r1 (s1): 1", "F 0->r3 (s3): 1", "F 1->r2 (s2): 2", "F 2->r3 (s3): 3",
                  "B 1->r0 (s0): 1", "B 2->r1 (s1): 2", "B 3->r1 (s1): 1", "B 3->r2 (s2): 3"));
}

TEST(MessagesTable, AllTensorsFromOneStageToOneRankArePacked) {
  BlockGraph graph = empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {a, b}, true);
  derive_states(graph);
  Placement placement = chain_placement(3);
  placement.stage_of_block = {0, 0, 1};
  placement.rank_of_stage = {0, 1};
  EXPECT_THAT(lines_of(transfers_of_micro_batch(graph, placement, 1)),
              ElementsAre("F 0->r1 (s1): 1 2", "B 1->r0 (s0): 1 2"));
}

TEST(MessagesTable, EdgesInsideARankAreNoMessages) {
  Placement placement = chain_placement(3);
  placement.rank_of_stage = {0, 0, 0};
  EXPECT_THAT(transfers_of_micro_batch(chain_graph(3), placement, 1), IsEmpty());
}

TEST(MessagesTable, ValueReadByTwoStagesOfARankIsSentOnce) {
  BlockGraph graph = empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  graph.output = add_opaque_block(graph, {b, a}, true);
  derive_states(graph);
  Placement placement = chain_placement(3);
  placement.rank_of_stage = {0, 1, 1};
  EXPECT_THAT(lines_of(transfers_of_micro_batch(graph, placement, 1)),
              ElementsAre("F 0->r1 (s1): 1", "B 1->r0 (s0): 1"));
}

TEST(MessagesTable, FoldMayVisitARankTwice) {
  BlockGraph graph = empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a}, true);
  const int c = add_opaque_block(graph, {b, a}, true);
  graph.output = add_opaque_block(graph, {c, a}, true);
  derive_states(graph);
  Placement placement = chain_placement(4);
  placement.rank_of_stage = {0, 1, 0, 1};
  const auto lines = lines_of(transfers_of_micro_batch(graph, placement, 1));
  EXPECT_THAT(lines, ElementsAre("F 0->r1 (s1): 1", "F 1->r0 (s2): 2", "F 2->r1 (s3): 3",
                                 "B 1->r0 (s0): 1", "B 2->r1 (s1): 1 2", "B 3->r0 (s2): 1 3"));
}

TEST(MessagesTable, ReplicatedAndDeadBlocksSendNothing) {
  BlockGraph graph = empty_graph();
  const int time = add_opaque_block(graph, {0}, false);
  const int a = add_opaque_block(graph, {0, time}, true);
  add_opaque_block(graph, {a}, true);  // reaches no loss
  graph.output = add_opaque_block(graph, {a, time}, true);
  derive_states(graph);
  Placement placement = chain_placement(4);
  placement.stage_of_block = {-1, 0, 1, 1};
  placement.rank_of_stage = {0, 1};
  EXPECT_THAT(lines_of(transfers_of_micro_batch(graph, placement, 1)),
              ElementsAre("F 0->r1 (s1): 2", "B 1->r0 (s0): 2"));
}

// The skip of value 1 goes to both other ranks; a second micro-batch counts no use of the first.
TEST(MessagesTable, UsesAreTheBlocksAndMessagesOfARankAndTheLoss) {
  BlockGraph graph = empty_graph();
  const int a = add_opaque_block(graph, {0}, true);
  const int b = add_opaque_block(graph, {a, 0}, true);
  graph.output = add_opaque_block(graph, {b, a}, true);
  derive_states(graph);
  const Placement placement = chain_placement(3);
  const Schedule schedule{.messages = message_table(graph, placement, {1, 1}), .ranks = {}};
  EXPECT_THAT(uses_on_rank(graph, placement, schedule, 0), ElementsAre(1, 2, 0, 0));
  EXPECT_THAT(uses_on_rank(graph, placement, schedule, 1), ElementsAre(1, 1, 1, 0));
  EXPECT_THAT(uses_on_rank(graph, placement, schedule, 2), ElementsAre(0, 1, 1, 1));
}

TEST(MessagesTable, TableIsSortedByMicroBatchDirectionSourceAndDestination) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 16});
    const Placement placement = testing::random_placement(graph, seed, 5, 3);
    const auto table = message_table(graph, placement, {2, 2, 1});
    auto key = [](const Message& m) {
      return std::tuple(m.micro_batch, m.direction, m.src_stage, m.dst_rank);
    };
    for (size_t i = 1; i < table.size(); ++i) EXPECT_LT(key(table[i - 1]), key(table[i]));
  }
}

// Written from the rules of docs/schedule.md, block by block, without the code's own dataflow.
TEST(MessagesTable, RandomGraphsSendExactlyWhatTheRulesSay) {
  using Sent = std::set<std::tuple<Direction, int, int, int>>;  // direction, value, source stage,
                                                                // destination rank
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 18});
    const int stages = 2 + static_cast<int>(seed % 5);
    Placement placement = testing::random_placement(graph, seed, stages, 1 + (seed / 5) % stages);
    placement.relays = false;
    ASSERT_THAT(placement_faults(graph, placement), IsEmpty()) << seed;
    Sent expected;
    for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
      const Value& value = graph.values[v];
      if (value.producer < 0 || placement.stage_of_block[value.producer] < 0) continue;
      const int home = placement.stage_of_block[value.producer];
      int holder = -1;  // stage that has the partial gradient
      for (auto c = value.consumers.rbegin(); c != value.consumers.rend(); ++c) {
        if (!graph.blocks[*c].reaches_loss) continue;
        const int stage = placement.stage_of_block[*c];
        if (placement.rank_of_stage[stage] != placement.rank_of_stage[home]) {
          expected.emplace(Direction::kForward, v, home, placement.rank_of_stage[stage]);
        }
        if (!value.carries_grad) continue;
        if (holder >= 0 && placement.rank_of_stage[holder] != placement.rank_of_stage[stage]) {
          expected.emplace(Direction::kBackward, v, holder, placement.rank_of_stage[stage]);
        }
        holder = stage;
      }
      if (holder >= 0 && placement.rank_of_stage[holder] != placement.rank_of_stage[home]) {
        expected.emplace(Direction::kBackward, v, holder, placement.rank_of_stage[home]);
      }
    }
    Sent sent;
    for (const Message& m : transfers_of_micro_batch(graph, placement, 1)) {
      for (const MessageItem& item : m.items) {
        EXPECT_TRUE(sent.emplace(m.direction, item.value, m.src_stage, m.dst_rank).second);
      }
    }
    EXPECT_EQ(sent, expected) << "seed " << seed;
  }
}

// Likewise: from stage to stage, back by way of those with a backward pass.
TEST(MessagesTable, RelayedValuesGoFromStageToStage) {
  int handed_on = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const BlockGraph graph =
        testing::random_graph(seed, {.blocks = 18, .trainable_percent = seed % 3 == 0 ? 10 : 50});
    const int stages = 2 + static_cast<int>(seed % 5);
    Placement placement = testing::random_placement(graph, seed, stages, stages);
    placement.relays = true;
    ASSERT_THAT(placement_faults(graph, placement), IsEmpty()) << seed;
    std::vector<bool> has_backward(stages, false);
    for (const Block& block : graph.blocks) {
      const int stage = placement.stage_of_block[&block - graph.blocks.data()];
      if (stage >= 0 && block.reaches_loss && block.state != BlockState::kF) {
        has_backward[stage] = true;
      }
    }
    std::set<std::tuple<Direction, int, int, int>> expected, sent;  // value, from, to stage
    for (int v = 0; v < static_cast<int>(graph.values.size()); ++v) {
      const Value& value = graph.values[v];
      if (value.producer < 0 || placement.stage_of_block[value.producer] < 0) continue;
      const int home = placement.stage_of_block[value.producer];
      int last = home;
      for (int consumer : value.consumers) {
        if (graph.blocks[consumer].reaches_loss) {
          last = std::max(last, placement.stage_of_block[consumer]);
        }
      }
      for (int s = home; s < last; ++s) expected.emplace(Direction::kForward, v, s, s + 1);
      if (!value.carries_grad) continue;
      const std::vector<int> givers = graph.gradient_consumers(v);
      if (givers.empty()) continue;
      int holder = placement.stage_of_block[givers.back()];
      for (int s = holder - 1; s >= home; --s) {
        if (!has_backward[s]) continue;
        expected.emplace(Direction::kBackward, v, holder, s);
        holder = s;
      }
    }
    for (const Message& m : transfers_of_micro_batch(graph, placement, 1)) {
      for (const MessageItem& item : m.items) {
        EXPECT_TRUE(sent.emplace(m.direction, item.value, m.src_stage, m.dst_stage).second);
        handed_on += graph.values[item.value].producer >= 0 && m.direction == Direction::kForward &&
                     placement.stage_of_block[graph.values[item.value].producer] != m.src_stage;
      }
    }
    EXPECT_EQ(sent, expected) << "seed " << seed;
  }
  EXPECT_GT(handed_on, 100);
}

TEST(MessagesInsertion, TwoStagesPostReceivesAheadOfTheirUse) {
  const BlockGraph graph = chain_graph(2);
  const Placement placement = chain_placement(2);
  const Schedule schedule =
      insert_messages(graph, placement, generate_order("1f1b", graph, placement, 2), {1, 1});
  // Messages: 0 F0.0->1, 1 B1.0->0, 2 F0.1->1, 3 B1.1->0.
  EXPECT_EQ(text_of(schedule.ranks[0]), "F0.0 S0 F0.1 S2 R1 B0.0 R3 B0.1 step");
  EXPECT_EQ(text_of(schedule.ranks[1]), "R0 F1.0 R2 B1.0 S1 F1.1 B1.1 S3 step");
}

TEST(MessagesInsertion, ReceivesStandAtMostSoManyComputeActionsAhead) {
  for (int ahead : {0, 1, 2, 3}) {
    // Frozen stages run far ahead of those that train.
    const BlockGraph graph = chain_graph(4, /*first_trainable=*/2);
    const Placement placement = chain_placement(4);
    const Schedule schedule =
        insert_messages(graph, placement, generate_order("1f1b", graph, placement, 8),
                        std::vector<int64_t>(8, 1), ahead);
    for (const auto& actions : schedule.ranks) {
      for (size_t i = 0; i < actions.size(); ++i) {
        if (actions[i].kind != ActionKind::kReceive) continue;
        const Message& message = schedule.messages[actions[i].message];
        const ActionKind user =
            message.direction == Direction::kForward ? ActionKind::kForward : ActionKind::kBackward;
        int between = 0;
        size_t k = i + 1;
        for (; actions[k].kind != user || actions[k].micro_batch != message.micro_batch; ++k) {
          between +=
              actions[k].kind != ActionKind::kSend && actions[k].kind != ActionKind::kReceive;
        }
        EXPECT_LE(between, ahead);
      }
    }
  }
}

// Otherwise a frozen stage would hold the outputs of all micro-batches.
TEST(MessagesInsertion, FrozenStageComputesRightBeforeItSends) {
  const BlockGraph graph = chain_graph(4, /*first_trainable=*/2);
  const Placement placement = chain_placement(4);
  const Schedule schedule = insert_messages(
      graph, placement, generate_order("1f1b", graph, placement, 16), std::vector<int64_t>(16, 1));
  for (int frozen : {0, 1}) {
    int held = 0;
    for (const Action& action : schedule.ranks[frozen]) {
      held += action.kind == ActionKind::kForward;
      held -= action.kind == ActionKind::kSend;
      EXPECT_LE(held, 1) << text_of(schedule.ranks[frozen]);
    }
  }
}

TEST(MessagesInsertion, OrderThatCannotRunNamesTheCycle) {
  const BlockGraph graph = chain_graph(2);
  auto order = generate_order("gpipe", graph, chain_placement(2), 2);
  // Rank 0 wants its backward of micro-batch 0 first, rank 1 all forwards first.
  std::swap(order[0][1], order[0][2]);
  try {
    insert_messages(graph, chain_placement(2), order, {1, 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0 waits at B0.0 for I1.0 of rank 1"));
    EXPECT_THAT(error.what(), HasSubstr("rank 1 waits at F1.1 for F0.1 of rank 0"));
  }
}

TEST(MessagesInsertion, OrderThatLacksAnActionNamesIt) {
  const BlockGraph graph = chain_graph(2);
  auto order = generate_order("gpipe", graph, chain_placement(2), 2);
  order[0].erase(order[0].begin());
  try {
    insert_messages(graph, chain_placement(2), order, {1, 1});
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("F0.0"));
  }
}

TEST(MessagesInsertion, ActionsOfOtherRanksAreRefused) {
  const BlockGraph graph = chain_graph(2);
  auto order = generate_order("gpipe", graph, chain_placement(2), 1);
  std::swap(order[0], order[1]);
  EXPECT_THROW(insert_messages(graph, chain_placement(2), order, {1}), ConfigError);
}

TEST(MessagesInsertion, CompleteOrderReadBackIsTheSameSchedule) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 14});
    const Placement placement = testing::random_placement(graph, seed, 4, 3);
    const std::vector<int64_t> sizes = {2, 2, 1};
    const Schedule schedule =
        insert_messages(graph, placement, generate_order("1f1b", graph, placement, 3), sizes);
    std::vector<std::vector<Action>> order;
    for (const auto& actions : schedule.ranks) {
      order.emplace_back();
      for (const Action& action : actions) order.back().push_back(parse_action(to_string(action)));
    }
    EXPECT_EQ(complete_order(graph, placement, order, sizes), schedule);
  }
}

TEST(MessagesInsertion, CompleteOrderRefusesANumberOutsideTheTable) {
  EXPECT_THROW(complete_order(chain_graph(2), chain_placement(2), {{parse_action("S2")}, {}}, {1}),
               ConfigError);
}

}  // namespace
}  // namespace stagecraft
