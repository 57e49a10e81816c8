// Every generated schedule is accepted; memory caps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "partitioner/schedule/verifier.h"
#include "tests/support/action_lists.h"
#include "tests/support/chain_graph.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::chain_graph;
using testing::chain_placement;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VerifierAccepts : public ::testing::TestWithParam<int> {};

TEST_P(VerifierAccepts, EveryGeneratedScheduleOfRandomGraphsWithSkips) {
  const int ranks = GetParam();
  for (int m = 1; m <= 16; ++m) {
    for (const char* generator : {"gpipe", "1f1b"}) {
      const uint64_t seed = static_cast<uint64_t>(ranks * 1000 + m * 10);
      const BlockGraph graph = testing::random_graph(seed, {.blocks = 2 * ranks + 10});
      const Placement placement = testing::random_placement(graph, seed, ranks, ranks);
      ASSERT_THAT(placement_faults(graph, placement), IsEmpty());
      std::vector<int64_t> sizes(m, 2);
      sizes.back() = 1;
      const auto order = generate_order(generator, graph, placement, m);
      for (int ahead : {0, 2, 4}) {
        const Schedule schedule = insert_messages(graph, placement, order, sizes, ahead);
        EXPECT_THAT(verify(graph, placement, sizes, schedule), IsEmpty())
            << generator << " p " << ranks << " m " << m << " ahead " << ahead;
      }
    }
  }
}

TEST_P(VerifierAccepts, EveryGeneratedScheduleWithSeveralStagesOnARank) {
  const int ranks = GetParam();
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const int stages = ranks + static_cast<int>(seed) % (ranks + 2);
    const int m = 1 + static_cast<int>(seed * 5 % 16);
    const BlockGraph graph = testing::random_graph(
        seed, {.blocks = stages + 12, .trainable_percent = seed % 3 == 0 ? 10 : 50});
    const Placement placement = testing::random_placement(graph, seed, stages, ranks);
    ASSERT_THAT(placement_faults(graph, placement), IsEmpty());
    const std::vector<int64_t> sizes(m, 1);
    for (const char* generator : {"gpipe", "1f1b"}) {
      const Schedule schedule =
          insert_messages(graph, placement, generate_order(generator, graph, placement, m), sizes);
      EXPECT_THAT(verify(graph, placement, sizes, schedule), IsEmpty())
          << generator << " p " << ranks << " stages " << stages << " m " << m << " seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, VerifierAccepts, ::testing::Range(1, 9));

TEST(VerifierBackward, SplitBackwardIsAcceptedInPlaceOfTheWhole) {
  const BlockGraph graph = chain_graph(2);
  const std::vector<std::vector<Action>> order = {
      testing::actions_of("F0.0 F0.1 I0.0 I0.1 W0.0 W0.1 step"),
      testing::actions_of("F1.0 I1.0 F1.1 I1.1 W1.0 W1.1 reduce step")};
  const Schedule schedule = insert_messages(graph, chain_placement(2), order, {1, 1});
  EXPECT_THAT(verify(graph, chain_placement(2), {1, 1}, schedule), IsEmpty());
}

class VerifierMemory : public ::testing::Test {
 protected:
  // Stage 0 of two, 1F1B, micro-batches of one sample: 2 × 1000 saved; B0.0 has its gradient and
  // that of F0.1's peer.
  std::vector<std::string> faults(int64_t cap) {
    const BlockGraph graph = chain_graph(2);
    const Placement placement = chain_placement(2);
    const std::vector<int64_t> sizes = {1, 1, 1};
    const Schedule schedule =
        insert_messages(graph, placement, generate_order("1f1b", graph, placement, 3), sizes);
    return verify(graph, placement, sizes, schedule,
                  {.memory_caps = {{cap}, {1 << 20}}, .saved_bytes_of_stage = {{1000}, {1000}}});
  }
};

TEST_F(VerifierMemory, ScheduleUnderItsCapIsAccepted) { EXPECT_THAT(faults(2300), IsEmpty()); }

TEST_F(VerifierMemory, ScheduleOverItsCapIsRefusedWithNumbersAndPlace) {
  EXPECT_THAT(faults(1999), ElementsAre(::testing::AllOf(HasSubstr("rank 0"), HasSubstr("1999"))));
}

}  // namespace
}  // namespace stagecraft
