#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "partitioner/solver/down_sets.h"
#include "partitioner/solver/solver.h"
#include "tests/support/random_graph.h"
#include "tests/support/toy_graph.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;

// Sets kinds by name after building a toy graph.
BlockGraph with_kinds(BlockGraph graph,
                      const std::vector<std::pair<std::string, BlockKind>>& kinds) {
  for (const auto& [name, kind] : kinds) {
    Block& block = graph.blocks.at(graph.find_block(name));
    block.kind = kind;
    if (kind != BlockKind::kSum) continue;
    block.params.clear();
    block.ops.pop_back();  // the linear layer behind the additions
    block.tensors.pop_back();
  }
  derive_states(graph);
  return graph;
}

std::set<std::set<std::string>> named(const BlockGraph& graph, const Units& units) {
  std::set<std::set<std::string>> names;
  for (const std::vector<int>& unit : units.blocks) {
    std::set<std::string> set;
    for (int b : unit) set.insert(graph.blocks[b].name);
    names.insert(set);
  }
  return names;
}

// A frozen encoder and a trainable branch of two blocks each, zero convolutions, sums, a decoder.
BlockGraph two_branches() {
  return with_kinds(ToyGraph()
                        .add("time", {"input.t"}, false)
                        .add("enc0", {"input.x", "time"}, false)
                        .add("enc1", {"enc0", "time"}, false)
                        .add("hint0", {"input.h"}, true)
                        .add("hint1", {"hint0"}, true)
                        .add("c_in", {"input.x"}, true)
                        .add("c_sum", {"c_in", "hint1"}, false)
                        .add("zero0", {"c_sum"}, true)
                        .add("c1", {"c_sum"}, true)
                        .add("zero1", {"c1"}, true)
                        .add("sum0", {"enc0", "zero0"}, false)
                        .add("sum1", {"enc1", "zero1"}, false)
                        .add("dec0", {"sum1", "time"}, false)
                        .add("dec1", {"dec0", "sum0"}, false)
                        .build("dec1"),
                    {{"time", BlockKind::kTimeEmbedding},
                     {"hint0", BlockKind::kHintConv},
                     {"hint1", BlockKind::kHintConv},
                     {"c_sum", BlockKind::kSum},
                     {"zero0", BlockKind::kZeroConv},
                     {"zero1", BlockKind::kZeroConv},
                     {"sum0", BlockKind::kSum},
                     {"sum1", BlockKind::kSum}});
}

TEST(GlueUnits, KeepsHintZeroConvolutionsAndTheirNeighboursTogether) {
  const BlockGraph graph = two_branches();
  const Units units = glue(graph);
  EXPECT_EQ(named(graph, units),
            (std::set<std::set<std::string>>{{"enc0"},
                                             {"enc1"},
                                             {"hint0", "hint1", "c_in", "c_sum", "zero0"},
                                             {"c1", "zero1"},
                                             {"sum1", "dec0"},
                                             {"sum0", "dec1"}}));
}

TEST(GlueUnits, AFrozenTimeEmbeddingIsReplicated) {
  const BlockGraph graph = two_branches();
  EXPECT_THAT(glue(graph).replicated, ElementsAre(graph.find_block("time")));
}

TEST(GlueUnits, ATrainableTimeEmbeddingStaysWithItsFirstConsumer) {
  const BlockGraph graph = with_kinds(ToyGraph()
                                          .add("time", {"input.t"}, true)
                                          .add("a", {"input.x", "time"}, true)
                                          .add("b", {"a", "time"}, true)
                                          .build("b"),
                                      {{"time", BlockKind::kTimeEmbedding}});
  const Units units = glue(graph);
  EXPECT_TRUE(units.replicated.empty());
  EXPECT_EQ(named(graph, units), (std::set<std::set<std::string>>{{"time", "a"}, {"b"}}));
}

TEST(GlueUnits, DownSetsOfTwoBranchesAreProductsOfPrefixes) {
  const BlockGraph graph = two_branches();
  // Encoder prefixes {0, 1, 2} x branch prefixes {0, 1, 2}, then two decoder blocks.
  EXPECT_EQ(down_sets(order_units(graph, glue(graph)), 100).size(), 9u + 2);
}

TEST(GlueUnits, EveryBlockIsInExactlyOneUnitOrReplicated) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const BlockGraph graph = testing::random_graph(seed);
    const Units units = glue(graph);
    std::vector<int> seen(graph.blocks.size(), 0);
    for (const auto& unit : units.blocks)
      for (int b : unit) ++seen[b];
    for (int b : units.replicated) ++seen[b];
    EXPECT_TRUE(std::ranges::all_of(seen, [](int n) { return n == 1; })) << "seed " << seed;
  }
}

// The claim that the search rests on: any nested down-sets make a valid placement, folds of
// gradients included.
TEST(GlueUnits, EveryPairOfNestedDownSetsIsAValidPlacement) {
  int placements = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    const BlockGraph graph = testing::random_graph(seed, {.blocks = 8});
    const UnitOrder order = order_units(graph, glue(graph));
    const std::vector<UnitSet> sets = down_sets(order, 5000);
    for (size_t cut = 1; cut + 1 < sets.size(); ++cut) {
      Placement placement{.stage_of_block = std::vector<int>(graph.blocks.size(), -1),
                          .rank_of_stage = {0, 1},
                          .recompute = std::vector<bool>(graph.blocks.size(), false)};
      for (size_t u = 0; u < order.units.blocks.size(); ++u)
        for (int b : order.units.blocks[u])
          placement.stage_of_block[b] = sets[cut].has(static_cast<int>(u)) ? 0 : 1;
      EXPECT_THAT(placement_faults(graph, placement), ::testing::IsEmpty()) << "seed " << seed;
      ++placements;
    }
  }
  EXPECT_GT(placements, 500);
}

}  // namespace
}  // namespace stagecraft
