// Idle time by cause: small steps worked out by hand, identities of pipelines, and random
// schedules.
#include "partitioner/simulate/bubbles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "partitioner/base/error.h"
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

struct BubbleStep {
  Schedule schedule;
  SimulatedStep step;
  std::vector<Bubble> bubbles;
  std::vector<BubbleSums> sums;

  int64_t sum(size_t rank, BubbleCause cause) const {
    return sums[rank][static_cast<size_t>(cause)].count;
  }
  // "0-10 warm-up, 40-60 drain"
  std::string text(int rank) const {
    std::string out;
    for (const Bubble& bubble : bubbles) {
      if (bubble.rank != rank) continue;
      out += (out.empty() ? "" : ", ") + std::to_string(bubble.start.count) + "-" +
             std::to_string(bubble.end.count) + " " + std::string(to_string(bubble.cause));
    }
    return out;
  }
};

BubbleStep with_bubbles(Schedule schedule, SimulatedStep step) {
  BubbleStep out{
      .schedule = std::move(schedule), .step = std::move(step), .bubbles = {}, .sums = {}};
  out.bubbles = find_bubbles(out.schedule, out.step);
  out.sums = sum_bubbles(out.bubbles, out.schedule.ranks.size());
  return out;
}

// A chain with a block on each rank, as a generator orders it.
BubbleStep chain_bubbles(const char* generator, int stages, int micro_batches,
                         const CostTable& costs, const Cluster& cluster) {
  const BlockGraph graph = chain_graph(stages);
  const Placement placement = chain_placement(stages);
  const std::vector<int64_t> sizes(static_cast<size_t>(micro_batches), 1);
  const Schedule schedule = insert_messages(
      graph, placement, generate_order(generator, graph, placement, micro_batches), sizes);
  return with_bubbles(schedule,
                      simulate(graph, placement, ClusterCosts(costs), cluster, schedule, sizes));
}

TEST(Bubbles, BalancedStagesOnAFastLinkOnlyFillAndDrain) {
  for (const char* generator : {"gpipe", "1f1b"}) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 12; ++m) {
        const BubbleStep found =
            chain_bubbles(generator, p, m, uniform_costs(chain_graph(p)), plain_cluster(p));
        for (size_t r = 0; r < found.sums.size(); ++r) {
          EXPECT_EQ(found.sum(r, BubbleCause::kOtherStage), 0) << generator << p << m << r;
          EXPECT_EQ(found.sum(r, BubbleCause::kCommunication), 0);
          EXPECT_EQ(found.sum(r, BubbleCause::kWarmUp) + found.sum(r, BubbleCause::kDrain),
                    (p - 1) * 30);
        }
      }
    }
  }
}

TEST(Bubbles, WhatASlowLinkAddsIsCommunication) {
  // F 10, message 107, F 10, B 20, message 107, B 20, one after the other.
  const BubbleStep found =
      chain_bubbles("1f1b", 2, 1, uniform_costs(chain_graph(2)), plain_cluster(2, 1e9, {7}));
  EXPECT_EQ(found.text(0), "10-117 communication, 117-147 warm-up, 147-254 communication");
  EXPECT_EQ(found.text(1),
            "0-10 warm-up, 10-117 communication, 147-254 communication, 254-274 drain");
}

TEST(Bubbles, ASlowStageMakesTheOthersWait) {
  CostTable costs = uniform_costs(chain_graph(2));
  costs.blocks.at("block0").forward.median = {50};
  const BubbleStep found = chain_bubbles("1f1b", 2, 3, costs, plain_cluster(2));
  // Rank 0: F0 0-50, F1 50-100, B0 100-120, F2 120-170, B1 170-190, B2 200-220.
  EXPECT_EQ(found.text(0), "190-200 drain");
  EXPECT_EQ(found.text(1),
            "0-50 warm-up, 80-100 other stage's work, 130-170 other stage's work, 200-220 drain");
}

TEST(Bubbles, ARankWhoseSendsAreAllUnderWayWaitsForTheLink) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  const std::vector<int64_t> sizes(6, 1);
  const Schedule schedule =
      complete_order(graph, chain_placement(2), testing::six_sends_ahead(), sizes);
  const BubbleStep found =
      with_bubbles(schedule, simulate(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                                      plain_cluster(2, 1e9, {}), schedule, sizes));
  // S4 waits for S0, S5 for S1. From 210 on rank 1 waits for a message or computes.
  EXPECT_EQ(found.text(0),
            "50-110 communication, 120-210 communication, 210-220 drain, 220-310 communication, "
            "310-320 drain, 320-410 communication, 410-420 drain, 420-510 communication, 510-520 "
            "drain, 520-610 communication, 610-740 drain");
}

TEST(Bubbles, ARankWhoseReceiverIsNotThereWaitsForItsWork) {
  const BlockGraph graph = chain_graph(2, /*first_trainable=*/1);
  const std::vector<int64_t> sizes(9, 1);
  const Schedule schedule =
      complete_order(graph, chain_placement(2),
                     {actions_of("F0.0 S0 F0.1 S1 F0.2 S2 F0.3 S3 F0.4 S4 F0.5 S5 F0.6 S6 F0.7 S7 "
                                 "F0.8 S8 step"),
                      actions_of("R0 F1.0 B1.0 R1 F1.1 B1.1 R2 F1.2 B1.2 R3 F1.3 B1.3 R4 F1.4 B1.4 "
                                 "R5 F1.5 B1.5 R6 F1.6 B1.6 R7 F1.7 B1.7 R8 F1.8 B1.8 step")},
                     sizes);
  const BubbleStep found =
      with_bubbles(schedule, simulate(graph, chain_placement(2), ClusterCosts(uniform_costs(graph)),
                                      plain_cluster(2), schedule, sizes));
  // S6 waits for S2, which rank 1 takes at 70: no wait. S7 waits for S3, taken at 100.
  EXPECT_EQ(found.text(0), "80-100 other stage's work, 110-280 drain");
  EXPECT_EQ(found.text(1), "0-10 warm-up");
}

TEST(Bubbles, AWaitForAWaitingRankHasTheCauseOfThatOne) {
  // Rank 2 waits for rank 1, which waits for a slow message of rank 0.
  const BlockGraph graph = chain_graph(3);
  const Schedule schedule = insert_messages(
      graph, chain_placement(3), generate_order("1f1b", graph, chain_placement(3), 1), {1});
  const BubbleStep found =
      with_bubbles(schedule, simulate(graph, chain_placement(3), ClusterCosts(uniform_costs(graph)),
                                      plain_cluster(3, 1e9, {}), schedule, {1}));
  EXPECT_TRUE(found.text(2).starts_with(
      "0-10 warm-up, 10-110 communication, 110-120 warm-up, 120-220 communication"))
      << found.text(2);
}

TEST(Bubbles, AreExactlyTheIdleTime) {
  int64_t by_cause[kBubbleCauses] = {};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 16});
    const Placement placement =
        testing::random_placement(graph, seed, 5, 1 + static_cast<int>(seed % 5));
    const std::vector<int64_t> sizes = micro_batch_sizes(1 + static_cast<int64_t>(seed % 9), 2);
    const auto order = generate_order(seed % 2 == 0 ? "1f1b" : "gpipe", graph, placement,
                                      static_cast<int>(sizes.size()));
    const Schedule schedule = insert_messages(graph, placement, order, sizes);
    const Cluster cluster = plain_cluster(placement.ranks(), seed % 3 == 0 ? 1e18 : 5e9, {20});
    const BubbleStep found = with_bubbles(
        schedule, simulate(graph, placement, ClusterCosts(testing::random_costs(graph, seed)),
                           cluster, schedule, sizes));
    std::vector<int64_t> idle(schedule.ranks.size());
    for (const BubbleSums& sums : found.sums) {
      const size_t r = static_cast<size_t>(&sums - found.sums.data());
      for (int c = 0; c < kBubbleCauses; ++c) {
        idle[r] += sums[c].count;
        by_cause[c] += sums[c].count;
      }
      EXPECT_EQ(idle[r], found.step.makespan.count - found.step.busy[r].count) << seed;
    }
    for (size_t b = 0; b < found.bubbles.size(); ++b) {
      const Bubble& bubble = found.bubbles[b];
      ASSERT_LT(bubble.start, bubble.end) << seed;
      if (b > 0 && found.bubbles[b - 1].rank == bubble.rank) {
        ASSERT_LE(found.bubbles[b - 1].end, bubble.start) << seed;
      }
      for (const TimedAction& timed : found.step.actions) {
        if (timed.rank != bubble.rank || !is_compute(schedule.ranks[timed.rank][timed.index]))
          continue;
        ASSERT_TRUE(timed.end <= bubble.start || timed.start >= bubble.end) << seed;
      }
    }
  }
  for (const int64_t time : by_cause) EXPECT_GT(time, 0);
}

TEST(Bubbles, OfAnotherScheduleAreRefused) {
  const BubbleStep two =
      chain_bubbles("1f1b", 2, 1, uniform_costs(chain_graph(2)), plain_cluster(2));
  const BubbleStep three =
      chain_bubbles("1f1b", 3, 1, uniform_costs(chain_graph(3)), plain_cluster(3));
  EXPECT_THROW(find_bubbles(two.schedule, three.step), InternalError);
}

}  // namespace
}  // namespace stagecraft
