// The page's data and file; tests/partitioner/page_browser_test.cc looks at it in a browser.
#include "partitioner/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/partitioner/page_samples.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

nlohmann::json data_of(const std::string& html) {
  const std::string start = "<script type=\"application/json\" id=\"data\">";
  const size_t from = html.find(start) + start.size();
  return nlohmann::json::parse(html.substr(from, html.find("</script>", from) - from));
}

TEST(Page, HoldsTheReportThatJsonPrints) {
  const PageSample sample = full_page_sample();
  const auto data = data_of(to_html(make_page(sample.sources())));
  EXPECT_EQ(data["report"], nlohmann::json::parse(to_json(sample.report)));
  EXPECT_EQ(data["step"]["makespan"], sample.plan.predicted_step.count);
}

TEST(Page, NoTextOfTheDataIsMarkup) {
  const std::string plain = to_html(make_page(full_page_sample("plain").sources()));
  const std::string marked = to_html(make_page(full_page_sample().sources()));
  const auto count = [](const std::string& text) { return std::ranges::count(text, '<'); };
  EXPECT_EQ(count(marked), count(plain));
  EXPECT_EQ(data_of(marked)["model"], kMarkup);
}

TEST(Page, NamesNoAddress) {
  const std::string html = to_html(make_page(full_page_sample("plain").sources()));
  EXPECT_THAT(html, Not(HasSubstr("://")));
  EXPECT_THAT(html, Not(HasSubstr("url(\"")));
  EXPECT_THAT(html, Not(HasSubstr("@import")));
}

TEST(Page, ActionsAndBubblesFillTheStep) {
  const Page page = make_page(full_page_sample().sources());
  for (size_t r = 0; r < page.actions.size(); ++r) {
    Nanos sum;
    for (const PageAction& action : page.actions[r]) sum += action.end - action.start;
    for (const Bubble& bubble : page.bubbles) {
      if (bubble.rank == static_cast<int>(r)) sum += bubble.end - bubble.start;
    }
    EXPECT_EQ(sum, page.makespan) << "rank " << r;
  }
}

TEST(Page, RecomputeIsThePartOfABackwardThatRunsForwardsAgain) {
  const Page page = make_page(full_page_sample().sources());
  for (const PageAction& action : page.actions[2]) {
    const bool is_backward = action.kind == ActionKind::kBackward;
    EXPECT_EQ(action.recompute.count, is_backward ? 4'000'000 : 0) << action.text;
  }
  for (const PageAction& action : page.actions[1]) EXPECT_EQ(action.recompute.count, 0);
}

TEST(Page, BlocksHaveTheirCosts) {
  const PageBlock block = make_page(full_page_sample().sources()).blocks.at(5);
  EXPECT_EQ(block.stage, 2);
  EXPECT_EQ(block.state, "F+I+W");
  EXPECT_EQ(block.forward.count, 4'000'000);
  EXPECT_EQ(block.backward.count, 6'000'000);
  EXPECT_EQ(block.saved, Bytes::from_mib(17.5));
  EXPECT_TRUE(block.recompute);
}

TEST(Page, SaysWhatIsTrainedOnWhat) {
  EXPECT_EQ(make_page(full_page_sample("toy").sources()).job,
            "Trains ControlNet at 512 × 512 pixels in fp32, batch 6 as micro-batches of 1, on 4 × "
            "toy (cluster toy): 4 stages, schedule 1f1b.");
}

TEST(Page, OtherCostsThanThePredictionsAreNoted) {
  PageSample sample = full_page_sample();
  EXPECT_TRUE(make_page(sample.sources()).notes.empty());
  sample.plan.predicted_step = {1'000'000'000};
  EXPECT_THAT(make_page(sample.sources()).notes,
              ElementsAre(HasSubstr("the prediction of 1000.0 ms is from other costs")));
}

TEST(PageReasons, SayWhatFitsAndWhatOthersTake) {
  const Report report = full_page_sample("toy").report;
  EXPECT_THAT(
      reasons_of(report),
      ElementsAre(
          "1 of 4 ranks DO NOT FIT their devices.",
          "Of 3 plans of which none is beaten in both time and memory, it is the fastest; the "
          "leanest takes 30.0 % more time and 40.0 % less memory.",
          "Would not fit: one device (260.0 MiB on a device of 120.0 MiB).",
          AllOf(StartsWith("Another way would be faster: toy takes "),
                HasSubstr(", 10.0 % less time, and holds 110.0 MiB."))));
}

TEST(PageReasons, ALeanChoiceNamesTheFastest) {
  Report report = full_page_sample("toy").report;
  report.front[0].is_chosen = false;
  report.front[2].is_chosen = true;
  EXPECT_THAT(reasons_of(report)[1], HasSubstr("it is the leanest; the fastest takes 23.1 % less "
                                               "time and 66.7 % more memory."));
}

TEST(PageReasons, NameTheNearestWayAndTheLeanest) {
  Report report = full_page_sample("toy").report;
  report.alternatives = {{.name = "near",
                          .how = "",
                          .memory = Bytes::from_mib(110),
                          .device_memory = Bytes::from_mib(120),
                          .step = report.step * 2,
                          .exposed = {}},
                         {.name = "lean",
                          .how = "",
                          .memory = Bytes::from_mib(70),
                          .device_memory = Bytes::from_mib(120),
                          .step = report.step * 3,
                          .exposed = {}}};
  const std::vector<std::string> reasons = reasons_of(report);
  EXPECT_THAT(reasons.at(2),
              StartsWith("No other way that fits is faster: the nearest, near takes "));
  EXPECT_THAT(reasons.at(3), StartsWith("Another way would hold less: lean takes 70.0 MiB on its "
                                        "fullest device, 20.0 % less memory, and "));
}

TEST(PageReasons, WithoutAStudyOnlyWhatFits) {
  Report report = full_page_sample("toy").report;
  report.front.clear();
  report.alternatives.clear();
  EXPECT_EQ(reasons_of(report).size(), 1u);
}

}  // namespace
}  // namespace stagecraft
