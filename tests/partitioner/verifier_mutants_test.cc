// Damaged schedules are refused; the verifier agrees with an exhaustive run of all interleavings.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
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

Case random_case(uint64_t seed, int stages, int ranks, int micro_batches, int blocks = 12) {
  Case c;
  c.graph = testing::random_graph(seed, {.blocks = blocks});
  c.placement = testing::random_placement(c.graph, seed, stages, ranks);
  c.sizes.assign(micro_batches, 2);
  c.sizes.back() = 1;
  const char* generator = seed % 2 == 0 ? "1f1b" : "gpipe";
  c.schedule =
      insert_messages(c.graph, c.placement,
                      generate_order(generator, c.graph, c.placement, micro_batches), c.sizes);
  return c;
}

// A random action of a kind that `fits`, as (list, index).
std::pair<std::vector<Action>*, size_t> pick(Schedule& schedule, Dice& dice,
                                             const std::function<bool(const Action&)>& fits) {
  std::vector<std::pair<std::vector<Action>*, size_t>> found;
  for (auto& actions : schedule.ranks) {
    for (size_t i = 0; i < actions.size(); ++i) {
      if (fits(actions[i])) found.emplace_back(&actions, i);
    }
  }
  return found[dice.below(static_cast<int>(found.size()))];
}

bool is_any(const Action&) { return true; }

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
       auto [list, i] = pick(c.schedule, dice, [](const Action& a) {
         return a.kind == ActionKind::kBackward && a.micro_batch == 0;
       });
       const int stage = (*list)[i].stage;
       for (Action& a : *list) {
         if (a.kind == ActionKind::kBackward && a.stage == stage && a.micro_batch < 2)
           a.micro_batch ^= 1;
       }
     }},
};

class VerifierMutants : public ::testing::TestWithParam<Mutation> {};

TEST_P(VerifierMutants, AreRefused) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Case c = random_case(seed, 3 + static_cast<int>(seed % 3), 2 + static_cast<int>(seed % 2), 3);
    ASSERT_TRUE(verify(c.graph, c.placement, c.sizes, c.schedule).empty());
    if (c.schedule.messages.size() < 2) continue;
    const Schedule before = c.schedule;
    Dice dice(seed);
    GetParam().apply(c, dice);
    if (c.schedule == before) continue;  // two equal messages exchanged
    EXPECT_FALSE(verify(c.graph, c.placement, c.sizes, c.schedule).empty()) << "seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(All, VerifierMutants, ::testing::ValuesIn(kMutations),
                         [](const auto& info) { return std::string(info.param.name); });

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const auto& actions : schedule.ranks) text.append("\n  ").append(testing::text_of(actions));
  return text;
}

// Moves of actions keep everything but the order, so that only dependencies, pair order and
// deadlock are in question.
TEST(VerifierOracle, AgreesWithAllInterleavingsOnReorderedSchedules) {
  int accepted = 0, refused = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Case c = random_case(seed, 2 + static_cast<int>(seed % 3),
                         2 + static_cast<int>(seed % 2 == 0 && seed % 3 != 0), 2, 7);
    Dice dice(seed * 31 + 7);
    for (int moves = 1 + dice.below(3); moves > 0; --moves) {
      auto& list = c.schedule.ranks[dice.below(static_cast<int>(c.schedule.ranks.size()))];
      const int last = static_cast<int>(list.size()) - 1;  // the step stays
      const int from = dice.below(last);
      const int to = std::clamp(from + dice.below(7) - 3, 0, last - 1);
      const Action moved = list[from];
      list.erase(list.begin() + from);
      list.insert(list.begin() + to, moved);
    }
    bool ascending = true;  // a rule of numerics, not of interleavings
    for (const auto& list : c.schedule.ranks) {
      for (size_t i = 0; i < list.size(); ++i) {
        for (size_t k = 0; k < i; ++k) {
          if (list[i].kind == ActionKind::kBackward && list[k].kind == ActionKind::kBackward &&
              list[i].stage == list[k].stage && list[i].micro_batch < list[k].micro_batch) {
            ascending = false;
          }
        }
      }
    }
    if (!ascending) continue;
    const std::string oracle = testing::Interleavings(c.graph, c.placement, c.schedule).explore();
    const auto faults = verify(c.graph, c.placement, c.sizes, c.schedule);
    ++(oracle.empty() ? accepted : refused);
    EXPECT_EQ(faults.empty(), oracle.empty())
        << "seed " << seed << " oracle: " << oracle
        << ", verifier: " << (faults.empty() ? std::string("accepts") : faults[0])
        << text_of(c.schedule);
  }
  // Both answers must occur often, or the comparison says little.
  EXPECT_GT(accepted, 60);
  EXPECT_GT(refused, 60);
}

}  // namespace
}  // namespace stagecraft
