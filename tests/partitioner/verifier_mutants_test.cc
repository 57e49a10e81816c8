// Damaged schedules are refused; the verifier agrees with an exhaustive run of all interleavings.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "partitioner/schedule/verifier.h"
#include "tests/support/action_lists.h"
#include "tests/support/interleavings.h"
#include "tests/support/random_graph.h"

namespace stagecraft {
namespace {

using testing::Dice;

struct Case {
  BlockGraph graph;
  Placement placement;
  std::vector<int64_t> sizes;
  Schedule schedule;
};

struct CaseShape {
  int stages = 3, ranks = 3, micro_batches = 3, blocks = 12;
};

// Replaces most B by I and W, which follows at once or later; gradients still come in ascending
// micro-batch.
std::vector<Action> split_backwards(const std::vector<Action>& actions, Dice& dice) {
  std::vector<Action> split;
  std::vector<Action> waiting;  // W
  const auto flush = [&](size_t count) {
    for (; count > 0 && !waiting.empty(); --count) {
      split.push_back(waiting.front());
      waiting.erase(waiting.begin());
    }
  };
  for (Action action : actions) {
    const bool whole = action.kind == ActionKind::kBackward && dice.percent(25);
    if (whole || action.kind == ActionKind::kStep) flush(waiting.size());
    if (action.kind == ActionKind::kBackward && !whole) {
      action.kind = ActionKind::kBackwardInput;
      waiting.push_back(action);
      waiting.back().kind = ActionKind::kBackwardWeight;
    }
    split.push_back(action);
    if (dice.percent(50)) flush(1);
  }
  return split;
}

// Seeds take turns: gpipe and 1f1b, whole and split backwards.
Case random_case(uint64_t seed, const CaseShape& shape) {
  Case c;
  c.graph = testing::random_graph(seed, {.blocks = shape.blocks});
  c.placement = testing::random_placement(c.graph, seed, shape.stages, shape.ranks);
  c.sizes.assign(static_cast<size_t>(shape.micro_batches), 2);
  c.sizes.back() = 1;
  const char* generator = seed % 2 == 0 ? "1f1b" : "gpipe";
  auto order = generate_order(generator, c.graph, c.placement, shape.micro_batches);
  Dice dice(seed + 1);
  if (seed % 4 >= 2) {
    for (auto& actions : order) actions = split_backwards(actions, dice);
  }
  c.schedule = insert_messages(c.graph, c.placement, order, c.sizes);
  return c;
}

// A random action of a kind that `fits`, as (list, index). Every schedule has one of each kind that
// is asked for.
std::pair<std::vector<Action>*, size_t> pick(Schedule& schedule, Dice& dice,
                                             const std::function<bool(const Action&)>& fits) {
  std::vector<std::pair<std::vector<Action>*, size_t>> found;
  for (auto& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (fits(actions[i])) found.emplace_back(&actions, i);
    }
  }
  return found.at(static_cast<size_t>(dice.below(static_cast<int>(found.size()))));
}

bool is_any(const Action&) { return true; }
bool does_inputs(const Action& a) {
  return a.kind == ActionKind::kBackward || a.kind == ActionKind::kBackwardInput;
}

struct Mutation {
  const char* name;
  void (*apply)(Case& c, Dice& dice);
};

void PrintTo(const Mutation& mutation, std::ostream* out) { *out << mutation.name; }

const Mutation kMutations[] = {
    {"DropAction",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_any);
       list->erase(list->begin() + static_cast<std::ptrdiff_t>(i));
     }},
    {"DuplicateAction",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_any);
       list->insert(list->begin() + static_cast<std::ptrdiff_t>(i), Action((*list)[i]));
     }},
    {"ForwardForBackward",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_compute);
       Action& a = (*list)[i];
       a.kind = a.kind == ActionKind::kForward ? ActionKind::kBackward : ActionKind::kForward;
     }},
    {"InputGradientsOnly",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_compute);
       (*list)[i].kind = ActionKind::kBackwardInput;
     }},
    {"SendForReceive",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_message);
       Action& a = (*list)[i];
       a.kind = a.kind == ActionKind::kSend ? ActionKind::kReceive : ActionKind::kSend;
     }},
    {"OtherMessage",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_message);
       const int n = static_cast<int>(c.schedule.messages.size());
       (*list)[i].message = ((*list)[i].message + 1 + dice.below(n - 1)) % n;
     }},
    {"OtherMicroBatch",
     [](Case& c, Dice& dice) {
       auto [list, i] =
           pick(c.schedule, dice, [](const Action& a) { return is_compute(a) || is_message(a); });
       const int m = static_cast<int>(c.sizes.size());
       (*list)[i].micro_batch = ((*list)[i].micro_batch + 1 + dice.below(m - 1)) % m;
     }},
    {"OtherStage",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_compute);
       (*list)[i].stage = ((*list)[i].stage + 1) % c.placement.stages();
     }},
    {"OtherRank",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice, is_any);
       const Action moved = (*list)[i];
       list->erase(list->begin() + static_cast<std::ptrdiff_t>(i));
       const size_t from = static_cast<size_t>(list - c.schedule.ranks.data());
       auto& other = c.schedule.ranks[(from + 1) % c.schedule.ranks.size()];
       other.insert(other.begin() + static_cast<std::ptrdiff_t>(std::min(i, other.size())), moved);
     }},
    {"MessageLosesAnItem",
     [](Case& c, Dice& dice) {
       c.schedule.messages[dice.below(static_cast<int>(c.schedule.messages.size()))]
           .items.pop_back();
     }},
    {"MessageCarriesAnotherValue",
     [](Case& c, Dice& dice) {
       auto& items =
           c.schedule.messages[dice.below(static_cast<int>(c.schedule.messages.size()))].items;
       int& value = items[dice.below(static_cast<int>(items.size()))].value;
       value = (value + 1) % static_cast<int>(c.graph.values.size());
     }},
    {"MessageOfOtherSize",
     [](Case& c, Dice& dice) {
       c.schedule.messages[dice.below(static_cast<int>(c.schedule.messages.size()))].bytes.count +=
           4;
     }},
    {"MessageTurnedAround",
     [](Case& c, Dice& dice) {
       Message& m = c.schedule.messages[dice.below(static_cast<int>(c.schedule.messages.size()))];
       std::swap(m.src_rank, m.dst_rank);
       std::swap(m.src_stage, m.dst_stage);
     }},
    {"MessagesExchanged",
     [](Case& c, Dice& dice) {
       const int n = static_cast<int>(c.schedule.messages.size());
       const int i = dice.below(n);
       std::swap(c.schedule.messages[i], c.schedule.messages[(i + 1 + dice.below(n - 1)) % n]);
     }},
    {"StepTooEarly",
     [](Case& c, Dice& dice) {
       auto [list, i] =
           pick(c.schedule, dice, [](const Action& a) { return a.kind == ActionKind::kStep; });
       std::swap((*list)[i], (*list)[dice.below(static_cast<int>(i))]);
     }},
    {"BackwardsExchanged",
     [](Case& c, Dice& dice) {
       auto [list, i] = pick(c.schedule, dice,
                             [](const Action& a) { return does_inputs(a) && a.micro_batch == 0; });
       const int stage = (*list)[i].stage;
       for (Action& a : *list) {
         if (is_compute(a) && a.kind != ActionKind::kForward && a.stage == stage &&
             a.micro_batch < 2) {
           a.micro_batch ^= 1;
         }
       }
     }},
};

class VerifierMutants : public ::testing::TestWithParam<Mutation> {};

TEST_P(VerifierMutants, AThousandAreRefused) {
  int mutants = 0;
  for (uint64_t seed = 0; mutants < 1000; ++seed) {
    ASSERT_LT(seed, 1000u);
    const int stages = 3 + static_cast<int>(seed % 3), ranks = 2 + static_cast<int>(seed % 2);
    const Case sound = random_case(seed, {.stages = stages, .ranks = ranks});
    ASSERT_TRUE(verify(sound.graph, sound.placement, sound.sizes, sound.schedule).empty());
    if (sound.schedule.messages.size() < 2) continue;
    Dice dice(seed);
    for (int turn = 0; turn < 20; ++turn) {
      Case c = sound;
      GetParam().apply(c, dice);
      if (c.schedule == sound.schedule) continue;  // two equal messages exchanged, W stays W
      ++mutants;
      ASSERT_FALSE(verify(c.graph, c.placement, c.sizes, c.schedule).empty())
          << "seed " << seed << ", turn " << turn;
    }
  }
  RecordProperty("mutants", mutants);
}

INSTANTIATE_TEST_SUITE_P(All, VerifierMutants, ::testing::ValuesIn(kMutations),
                         [](const auto& info) { return std::string(info.param.name); });

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.ranks) text.append("\n  ").append(testing::text_of(actions));
  return text;
}

// Two actions of one rank that change places keep everything but the order, so that only
// dependencies, sums, pair order and deadlock are in question.
struct Swaps {
  const char* name;
  bool adjacent;
  uint64_t first_seed;
};

class VerifierSwaps : public ::testing::TestWithParam<Swaps> {};

TEST_P(VerifierSwaps, GetTheVerdictOfAllInterleavings) {
  constexpr int kSwaps = 1000;
  int swaps = 0, accepted = 0;
  for (uint64_t seed = GetParam().first_seed; swaps < kSwaps; ++seed) {
    const int stages = 2 + static_cast<int>(seed % 3);
    const int ranks = stages > 2 && seed % 8 > 4 ? 3 : 2;
    const Case sound =
        random_case(seed, {.stages = stages, .ranks = ranks, .micro_batches = 2, .blocks = 7});
    Dice dice(seed * 31 + 7);
    for (int turn = 0; turn < 8; ++turn) {
      Case c = sound;
      auto& list = c.schedule.ranks[static_cast<size_t>(dice.below(ranks))];
      const int size = static_cast<int>(list.size());
      const int i = dice.below(size - 1);
      const int k = GetParam().adjacent ? i + 1 : i + 1 + dice.below(size - 1 - i);
      std::swap(list[static_cast<size_t>(i)], list[static_cast<size_t>(k)]);
      ++swaps;
      const std::string oracle = testing::Interleavings(c.graph, c.placement, c.schedule).explore();
      const auto faults = verify(c.graph, c.placement, c.sizes, c.schedule);
      accepted += faults.empty();
      ASSERT_EQ(faults.empty(), oracle.empty())
          << "seed " << seed << " oracle: " << oracle
          << ", verifier: " << (faults.empty() ? std::string("accepts") : faults[0])
          << text_of(c.schedule);
    }
  }
  RecordProperty("swaps", swaps);
  RecordProperty("accepted", accepted);
  std::cout << swaps << " swaps, " << accepted << " accepted\n";
  // Both answers must occur often, or the comparison says little.
  EXPECT_GE(accepted, 50);
  EXPECT_GE(swaps - accepted, 50);
}

INSTANTIATE_TEST_SUITE_P(All, VerifierSwaps,
                         ::testing::Values(Swaps{"Adjacent0", true, 0},
                                           Swaps{"Adjacent1", true, 1000},
                                           Swaps{"AnyTwo0", false, 2000},
                                           Swaps{"AnyTwo1", false, 3000}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace stagecraft
