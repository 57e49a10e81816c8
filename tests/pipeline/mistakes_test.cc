// The suite is worth what it notices: every deliberate mistake is switched on, and some check must
// fail.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "tests/pipeline/checks.h"
#include "tests/support/diffusers_parity.h"
#include "tests/support/scoped_mistake.h"

namespace stagecraft {
namespace {

struct Expected {
  const char* name;  // nullptr behind the last mistake
  const char* noticed_by;
};

// The compiler refuses a value that has no case here (-Wswitch), so none is forgotten.
constexpr Expected expected_of(Mistake mistake) {
  switch (mistake) {
    case Mistake::kScalePerStage:
      return {"loss scale applied per stage", "one stage, one graph, full batch, optimizer"};
    case Mistake::kMeanOfMeans:
      return {"mean of means", "one graph, full batch, optimizer"};
    case Mistake::kClipPerStage:
      return {"clipping per stage", "one stage, optimizer"};
    case Mistake::kSwappedMicroBatches:
      return {"swapped micro-batches", "one stage, one graph, full batch"};
    case Mistake::kResidualAddedTwice:
      return {"residual added twice", "diffusers"};
    case Mistake::kSkipGradientDropped:
      return {"skip gradient dropped", "fold, one graph, full batch, optimizer"};
    case Mistake::kFoldInWrongOrder:
      return {"fold in the wrong order", "one stage, fold"};
    case Mistake::kTanhGelu:
      return {"tanh-GELU", "diffusers"};
    case Mistake::kGroupNormEps:
      return {"wrong GroupNorm eps", "diffusers"};
    case Mistake::kZeroForNone:
      return {"zero instead of None gradient", "None"};
    case Mistake::kSharedNoise:
      return {"noise shared by two samples", "one graph, full batch, optimizer"};
    case Mistake::kStaleWeights:
      return {"stale weights in the second micro-batch", "optimizer"};
  }
  return {nullptr, nullptr};
}

std::vector<Mistake> all_mistakes() {
  std::vector<Mistake> all;
  for (uint32_t i = 0; expected_of(static_cast<Mistake>(i)).name != nullptr; ++i) {
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

bool fails(const Check& check) {
  ::testing::TestPartResultArray results;
  {
    const ::testing::ScopedFakeTestPartResultReporter capture(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &results);
    check.run();
  }
  for (int i = 0; i < results.size(); ++i) {
    if (results.GetTestPartResult(i).failed()) return true;
  }
  return false;
}

std::string checks_that_fail() {
  at::set_num_threads(1);
  std::string names;
  for (const Check& check : kChecks) {
    if (fails(check)) names += fmt::format("{}{}", names.empty() ? "" : ", ", check.name);
  }
  return names;
}

TEST(NoMistakeLarge, EveryCheckPasses) { EXPECT_EQ(checks_that_fail(), ""); }

class MistakesLarge : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakesLarge, IsNoticed) {
  const ScopedMistake switched_on(GetParam());
  EXPECT_EQ(checks_that_fail(), expected_of(GetParam()).noticed_by);
}

TEST(MistakesOnTheProofPage, AreThoseThatAreChecked) {
  std::ifstream file(STAGECRAFT_SOURCE_DIR "/docs/proof.md");
  std::ostringstream page;
  page << file.rdbuf();
  for (const Mistake mistake : all_mistakes()) {
    const Expected expected = expected_of(mistake);
    EXPECT_NE(page.str().find(fmt::format("\n| {} | {} |\n", expected.name, expected.noticed_by)),
              std::string::npos)
        << expected.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MistakesLarge, ::testing::ValuesIn(all_mistakes()),
                         [](const auto& info) {
                           std::string name = expected_of(info.param).name;
                           std::erase_if(name, [](char c) {
                             return std::isalnum(static_cast<unsigned char>(c)) == 0;
                           });
                           return name;
                         });

}  // namespace
}  // namespace stagecraft
