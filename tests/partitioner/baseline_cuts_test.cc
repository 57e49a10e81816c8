// The known ways to cut a sequence, against enumeration and against what their authors promise.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "partitioner/baselines/cuts.h"
#include "tests/support/expect_error.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::Dice;
using Weights = std::vector<int64_t>;

std::vector<int64_t> parts_of(const Weights& weights, const Cuts& cuts) {
  std::vector<int64_t> sums;
  for (size_t i = 1; i < cuts.size(); ++i) {
    sums.push_back(
        std::accumulate(weights.begin() + cuts[i - 1], weights.begin() + cuts[i], int64_t{0}));
  }
  return sums;
}

int64_t spread(const std::vector<int64_t>& parts) {
  const auto [least, most] = std::ranges::minmax(parts);
  return most - least;
}

// Every way to cut into non-empty parts.
void for_each_cut(int items, int parts, const std::function<void(const Cuts&)>& visit) {
  Cuts cuts{0};
  const std::function<void()> extend = [&] {
    const int made = static_cast<int>(cuts.size()) - 1;
    if (made == parts - 1) {
      cuts.push_back(items);
      visit(cuts);
      cuts.pop_back();
      return;
    }
    for (int next = cuts.back() + 1; next <= items - (parts - 1 - made); ++next) {
      cuts.push_back(next);
      extend();
      cuts.pop_back();
    }
  };
  extend();
}

Weights random_weights(Dice& dice, int items, int percent_zero) {
  Weights weights;
  for (int i = 0; i < items; ++i) {
    weights.push_back(dice.percent(percent_zero) ? 0 : 1 + dice.below(50));
  }
  return weights;
}

void expect_cuts(const Cuts& cuts, int items, int parts) {
  ASSERT_EQ(cuts.size(), static_cast<size_t>(parts) + 1);
  EXPECT_EQ(cuts.front(), 0);
  EXPECT_EQ(cuts.back(), items);
  EXPECT_TRUE(std::ranges::adjacent_find(cuts, std::greater_equal<>()) == cuts.end());
}

TEST(BaselineCuts, UniformGivesWhatIsLeftToTheFirstParts) {
  EXPECT_EQ(uniform_cuts(10, 4), (Cuts{0, 3, 6, 8, 10}));
  EXPECT_EQ(uniform_cuts(4, 4), (Cuts{0, 1, 2, 3, 4}));
  EXPECT_EQ(uniform_cuts(7, 1), (Cuts{0, 7}));
}

TEST(BaselineCuts, MinMaxIsTheEnumeratedOptimum) {
  Dice dice(1);
  for (int trial = 0; trial < 300; ++trial) {
    const int items = 2 + dice.below(9), parts = 1 + dice.below(std::min(items, 5));
    const Weights weights = random_weights(dice, items, 20);
    int64_t best = std::numeric_limits<int64_t>::max();
    for_each_cut(items, parts, [&](const Cuts& cuts) {
      best = std::min(best, std::ranges::max(parts_of(weights, cuts)));
    });
    const Cuts cuts = min_max_cuts(weights, parts);
    expect_cuts(cuts, items, parts);
    EXPECT_EQ(std::ranges::max(parts_of(weights, cuts)), best) << "trial " << trial;
  }
}

// With two parts an entry of the table has nothing to forget: the spread is the least there is.
TEST(BaselineCuts, LeastSpreadIsExactForTwoParts) {
  Dice dice(2);
  for (int trial = 0; trial < 200; ++trial) {
    const int items = 2 + dice.below(10);
    const Weights weights = random_weights(dice, items, 20);
    int64_t best = std::numeric_limits<int64_t>::max();
    for_each_cut(items, 2,
                 [&](const Cuts& cuts) { best = std::min(best, spread(parts_of(weights, cuts))); });
    EXPECT_EQ(spread(parts_of(weights, least_spread_cuts(weights, 2))), best) << "trial " << trial;
  }
}

TEST(BaselineCuts, LeastSpreadTakesTheLastOfEqualSplits) {
  EXPECT_EQ(least_spread_cuts({1, 1, 0, 0}, 2), (Cuts{0, 1, 4}));
  // 1 0 0 | 1 and 1 | 0 0 1 are equal; the last cut that is tried stays.
  EXPECT_EQ(least_spread_cuts({1, 0, 0, 1}, 2), (Cuts{0, 3, 4}));
}

TEST(BaselineCuts, LeastSpreadNeedNotHaveTheLeastLargestPart) {
  int worse = 0;
  Dice dice(3);
  for (int trial = 0; trial < 300; ++trial) {
    const int items = 6 + dice.below(8), parts = 3 + dice.below(2);
    const Weights weights = random_weights(dice, items, 10);
    const Cuts cuts = least_spread_cuts(weights, parts);
    expect_cuts(cuts, items, parts);
    const int64_t least = std::ranges::max(parts_of(weights, min_max_cuts(weights, parts)));
    const int64_t largest = std::ranges::max(parts_of(weights, cuts));
    EXPECT_GE(largest, least);
    worse += largest > least ? 1 : 0;
  }
  EXPECT_GT(worse, 10);
}

// Bárány and Grinberg: parts of weights in [0, 1] can be made to differ by at most 1.
TEST(BaselineCuts, BlockPartitionPartsDifferByAtMostTheLargestWeight) {
  Dice dice(4);
  for (int trial = 0; trial < 500; ++trial) {
    const int items = 1 + dice.below(30), parts = 1 + dice.below(std::min(items, 8));
    Weights weights = random_weights(dice, items, 10);
    const Cuts cuts = block_partition_cuts(weights, parts);
    expect_cuts(cuts, items, parts);
    const auto [least, most] = std::ranges::minmax(weights);
    for (int64_t& weight : weights) weight -= least;
    EXPECT_LE(spread(parts_of(weights, cuts)), most - least) << "trial " << trial;
  }
}

TEST(BaselineCuts, BlockPartitionMovesItemsFromTheNeighbourOfTheSmallestPart) {
  // Starts as 9 9 | 1 1 (18 and 2), one 9 moves: 9 | 9 1 1; after the shift by 1 they are 8 and 8.
  EXPECT_EQ(block_partition_cuts({9, 9, 1, 1}, 2), (Cuts{0, 1, 4}));
  // Equal weights are all 0 after the shift: nothing moves.
  EXPECT_EQ(block_partition_cuts({5, 5, 5}, 2), (Cuts{0, 1, 3}));
}

TEST(BaselineCuts, FewerItemsThanPartsAreRefused) {
  EXPECT_EQ(caught([] { uniform_cuts(2, 3); }).code, ExitCode::kInternal);
  EXPECT_EQ(caught([] { least_spread_cuts({1, 2}, 3); }).code, ExitCode::kInternal);
  EXPECT_EQ(caught([] { block_partition_cuts({1, 2}, 3); }).code, ExitCode::kInternal);
  EXPECT_EQ(caught([] { min_max_cuts({1, 2}, 0); }).code, ExitCode::kInternal);
}

}  // namespace
}  // namespace stagecraft
