// Times of simulated steps: identities of pipelines, messages, and what bounds what.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "partitioner/base/error.h"
#include "partitioner/simulate/simulator.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"
#include "tests/support/made_up_costs.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::actions_of;
using testing::chain_graph;
using testing::chain_placement;
using testing::plain_cluster;
using testing::uniform_costs;

SimulatedStep simulate_chain(const char* generator, int stages, const std::vector<int64_t>& sizes,
                             const Cluster& cluster) {
  const BlockGraph graph = chain_graph(stages);
  const Placement placement = chain_placement(stages);
  const auto order = generate_order(generator, graph, placement, static_cast<int>(sizes.size()));
  return simulate(graph, placement, ClusterCosts(uniform_costs(graph)), cluster,
                  insert_messages(graph, placement, order, sizes), sizes);
}

// Start and end by rank and text of the action.
std::map<std::string, std::pair<int64_t, int64_t>> times_of(const SimulatedStep& step,
                                                            const Schedule& schedule) {
  std::map<std::string, std::pair<int64_t, int64_t>> times;
  for (const TimedAction& timed : step.actions) {
    const Action& action = schedule.ranks[timed.rank][timed.index];
    times[to_string(action)] = {timed.start.count, timed.end.count};
  }
  return times;
}

TEST(SimulatorStep, BalancedStagesHaveTheTextbookBubble) {
  for (const char* generator : {"gpipe", "1f1b"}) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 16; ++m) {
        const SimulatedStep step =
            simulate_chain(generator, p, std::vector<int64_t>(m, 1), plain_cluster(p));
        // Stage 0 has no input gradient to compute in a real graph, but this table gives all blocks
        // the same costs.
        EXPECT_EQ(step.makespan.count, (m + p - 1) * 30) << generator << " p " << p << " m " << m;
        EXPECT_NEAR(step.bubble(), static_cast<double>(p - 1) / (m + p - 1), 1e-12);
      }
    }
  }
}

TEST(SimulatorStep, BusyTimeIsComputeOnly) {
  const SimulatedStep step =
      simulate_chain("1f1b", 3, {1, 1}, plain_cluster(3, /*bandwidth=*/1e9, /*latency=*/{500}));
  EXPECT_EQ(step.busy, (std::vector<Nanos>{{60}, {60}, {60}}));
}

TEST(SimulatorStep, MessageTakesLatencyAndBytesOverBandwidth) {
  // 100 bytes at 1 byte a ns and 7 ns: F 10, message 107, F 10, B 20, message 107, B 20.
  const SimulatedStep step = simulate_chain("1f1b", 2, {1}, plain_cluster(2, 1e9, {7}));
  EXPECT_EQ(step.makespan.count, 10 + 107 + 10 + 20 + 107 + 20);
}

TEST(SimulatorStep, EveryMessageTakesTheLinkOfItsPair) {
  Cluster cluster = plain_cluster(3, 1e9, {7});
  cluster.host_of_rank = {0, 0, 1};
  cluster.between_hosts = {.bandwidth = 1e8, .latency = {9}};
  // Ranks 0 and 1: 107 ns there; back 50 ns by an exception. Ranks 1 and 2: 1009 ns each way.
  cluster.exceptions[{1, 0}] = {.bandwidth = 2e9, .latency = {}};
  const SimulatedStep step = simulate_chain("1f1b", 3, {1}, cluster);
  EXPECT_EQ(step.makespan.count, 3 * 30 + 107 + 2 * 1009 + 50);
}

TEST(SimulatorStep, EveryRankRunsAtTheSpeedOfItsDevice) {
  const BlockGraph graph = chain_graph(3);
  CostTable fast = uniform_costs(graph), slow = fast;
  for (auto& [name, cost] : slow.blocks) {
    for (Timing* part : {&cost.forward, &cost.backward_input, &cost.backward_weight}) {
      part->median.count *= 3;
    }
  }
  const Schedule schedule = insert_messages(
      graph, chain_placement(3), generate_order("1f1b", graph, chain_placement(3), 1), {1});
  const SimulatedStep step =
      simulate(graph, chain_placement(3), ClusterCosts({fast, slow}, {0, 1, 0}), plain_cluster(3),
               schedule, {1});
  EXPECT_EQ(step.busy, (std::vector<Nanos>{{30}, {90}, {30}}));
  EXPECT_EQ(step.makespan.count, 150);
}

TEST(SimulatorStep, MessagesOverlapCompute) {
  const BlockGraph graph = chain_graph(2);
  const Schedule schedule = complete_order(graph, chain_placement(2),
                                           {actions_of("F0.0 S0 F0.1 S2 R1 B0.0 R3 B0.1 step"),
                                            actions_of("R0 F1.0 R2 F1.1 B1.0 S1 B1.1 S3 step")},
                                           {1, 1});
  const auto times =
      times_of(simulate(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                        plain_cluster(2, 1e9, {}), schedule, {1, 1}),
               schedule);
  EXPECT_EQ(times.at("S0"), std::pair(int64_t{10}, int64_t{110}));
  EXPECT_EQ(times.at("F0.1"), std::pair(int64_t{10}, int64_t{20}));
  // R2 is reached after F1.0, at 120; one pair's messages go one after the other anyway.
  EXPECT_EQ(times.at("S2"), std::pair(int64_t{120}, int64_t{220}));
}

TEST(SimulatorStep, FifthSendHoldsItsRankUntilTheFirstIsOver) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  const std::vector<int64_t> sizes(6, 1);
  const Schedule schedule =
      complete_order(graph, chain_placement(2), testing::six_sends_ahead(), sizes);
  const auto times =
      times_of(simulate(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                        plain_cluster(2, 1e9, {}), schedule, sizes),
               schedule);
  EXPECT_EQ(times.at("F0.4").first, 40);
  EXPECT_EQ(times.at("S0").second, 110);
  EXPECT_EQ(times.at("F0.5").first, 110);
}

TEST(SimulatorStep, SmallerLastMicroBatchTakesLessTime) {
  const BlockGraph graph = chain_graph(1);
  CostTable costs = uniform_costs(graph);
  costs.micro_batch = 4;
  const Schedule schedule = insert_messages(
      graph, chain_placement(1), generate_order("gpipe", graph, chain_placement(1), 2), {4, 2});
  const SimulatedStep step =
      simulate(graph, chain_placement(1), ClusterCosts(costs), plain_cluster(1), schedule, {4, 2});
  EXPECT_EQ(step.makespan.count, 30 + 15);
}

// Compute time of every rank for one micro-batch.
std::vector<Nanos> busy(const BlockGraph& graph, const Placement& placement,
                        const CostTable& costs) {
  const Schedule schedule =
      insert_messages(graph, placement, generate_order("1f1b", graph, placement, 1), {1});
  return simulate(graph, placement, ClusterCosts(costs), plain_cluster(placement.ranks()), schedule,
                  {1})
      .busy;
}

TEST(SimulatorStep, RecomputedBlocksRunForwardAgain) {
  const BlockGraph graph = chain_graph(2);
  Placement placement = chain_placement(2);
  placement.recompute[1] = true;
  const std::vector<Nanos> times = busy(graph, placement, uniform_costs(graph));
  EXPECT_EQ(times[0].count, 10 + 20);
  EXPECT_EQ(times[1].count, 10 + 30);
}

TEST(SimulatorStep, FrozenStageHasNoBackwardTime) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  EXPECT_EQ(busy(graph, chain_placement(2), uniform_costs(graph))[0].count, 10);
}

TEST(SimulatorStep, ScheduleThatDeadlocksIsRefused) {
  const BlockGraph graph = chain_graph(2);
  const Schedule schedule =
      complete_order(graph, chain_placement(2),
                     {actions_of("F0.0 R1 B0.0 S0 step"), actions_of("R0 F1.0 B1.0 S1 step")}, {1});
  EXPECT_THROW(simulate(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                        plain_cluster(2), schedule, {1}),
               InternalError);
}

TEST(SimulatorStep, TableWithoutABlockOfTheGraphIsRefused) {
  const BlockGraph graph = chain_graph(1);
  CostTable costs = uniform_costs(graph);
  costs.blocks.clear();
  try {
    busy(graph, chain_placement(1), costs);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ExitCode::kPlanMismatch);
    EXPECT_NE(std::string(error.what()).find("block0"), std::string::npos);
  }
}

TEST(SimulatorStep, NothingStartsBeforeWhatItNeeds) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 16});
    const Placement placement =
        testing::random_placement(graph, seed, 5, 1 + static_cast<int>(seed % 5));
    const std::vector<int64_t> sizes = {2, 2, 2, 1};
    const Schedule schedule =
        insert_messages(graph, placement, generate_order("1f1b", graph, placement, 4), sizes);
    const SimulatedStep step =
        simulate(graph, placement, ClusterCosts(testing::random_costs(graph, seed)),
                 plain_cluster(placement.ranks(), 1e10, {20}), schedule, sizes);
    const auto times = times_of(step, schedule);
    Nanos busy;
    for (Nanos b : step.busy) busy += b;
    EXPECT_LE(busy.count, step.makespan.count * placement.ranks());
    for (size_t id = 0; id < schedule.messages.size(); ++id) {
      const Message& m = schedule.messages[id];
      const ActionKind kind =
          m.direction == Direction::kForward ? ActionKind::kForward : ActionKind::kBackward;
      auto text = [&](ActionKind of) {
        return to_string(Action{.kind = of, .message = static_cast<int>(id)});
      };
      auto compute = [&](int stage) {
        return times.at(
            to_string(Action{.kind = kind, .stage = stage, .micro_batch = m.micro_batch}));
      };
      const auto message = times.at(text(ActionKind::kSend));
      EXPECT_EQ(message, times.at(text(ActionKind::kReceive)));
      EXPECT_GE(message.first, compute(m.src_stage).second);
      EXPECT_LE(message.second, compute(m.dst_stage).first);
    }
  }
}

}  // namespace
}  // namespace stagecraft
