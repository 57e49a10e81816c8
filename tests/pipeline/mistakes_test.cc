// The suite is worth what it notices: every deliberate mistake is switched on, and some check must
// fail.
#include "partitioner/base/mistakes.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <string>
#include <vector>

#include "tests/pipeline/checks.h"
#include "tests/support/diffusers_parity.h"

namespace stagecraft {
namespace {

// nullptr behind the last one. The compiler refuses a value that has no case here (-Wswitch), so
// none is forgotten.
constexpr const char* name_of(Mistake mistake) {
  switch (mistake) {
    case Mistake::kScalePerStage:
      return "loss scale applied per stage";
    case Mistake::kMeanOfMeans:
      return "mean of means";
    case Mistake::kClipPerStage:
      return "clipping per stage";
    case Mistake::kSwappedMicroBatches:
      return "swapped micro-batches";
    case Mistake::kResidualAddedTwice:
      return "residual added twice";
    case Mistake::kSkipGradientDropped:
      return "skip gradient dropped";
    case Mistake::kFoldInWrongOrder:
      return "fold in the wrong order";
    case Mistake::kTanhGelu:
      return "tanh-GELU";
    case Mistake::kGroupNormEps:
      return "wrong GroupNorm eps";
    case Mistake::kZeroForNone:
      return "zero instead of None gradient";
    case Mistake::kSharedNoise:
      return "noise shared by two samples";
    case Mistake::kStaleWeights:
      return "stale weights in the second micro-batch";
  }
  return nullptr;
}

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  for (uint32_t i = 0; name_of(static_cast<Mistake>(i)) != nullptr; ++i) {
    all.push_back(static_cast<Mistake>(i));
  }
  return all;
}

struct Check {
  const char* name;
  std::function<void()> run;
};

const Check kChecks[] = {
    {"diffusers", [] { expect_parity_with_diffusers(kUnlocked); }},
    {"one stage", [] { check_same_bits_as_one_stage(kUnlocked); }},
    {"fold", [] { check_fold_order(kUnlocked); }},
    {"one graph", [] { check_gradients_of_one_graph(kUnlocked); }},
    {"full batch", [] { check_gradients_of_one_batch(kUnlocked); }},
    {"optimizer", [] { check_training_with_stock_optimizer(kUnlocked, 3, 1e-3); }},
    {"None", [] { check_none_gradients(); }},
};

// The first failure of a check; empty when it passes.
std::string failure_of(const Check& check) {
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter capture(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    try {
      check.run();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) return results.GetTestPartResult(i).message();
  }
  return {};
}

std::string checks_that_fail() {
  at::set_num_threads(1);
  std::string names;
  for (const Check& check : kChecks) {
    if (!failure_of(check).empty())
      names += fmt::format("{}{}", names.empty() ? "" : ", ", check.name);
  }
  return names;
}

TEST(NoMistakeLarge, EveryCheckPasses) { EXPECT_EQ(checks_that_fail(), ""); }

class MistakesLarge : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakesLarge, IsNoticed) {
  const ScopedMistake switched_on(GetParam());
  const std::string noticed_by = checks_that_fail();
  fmt::print("{:<40} {}\n", name_of(GetParam()), noticed_by);
  EXPECT_NE(noticed_by, "") << name_of(GetParam()) << " goes unnoticed";
}

INSTANTIATE_TEST_SUITE_P(All, MistakesLarge, ::testing::ValuesIn(all_mistakes()),
                         [](const auto& info) {
                           std::string name = name_of(info.param);
                           std::erase_if(name, [](char c) {
                             return std::isalnum(static_cast<unsigned char>(c)) == 0;
                           });
                           return name;
                         });

}  // namespace
}  // namespace stagecraft
