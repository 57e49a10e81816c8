// The page as a browser shows it: what is on it, at two widths, light and dark, with names that
// would break out of a careless one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/partitioner/page_samples.h"
#include "tests/support/programs.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using nlohmann::json;

class PageInBrowser : public ::testing::Test {
 protected:
  // What tests/python/look_at_page.py saw in each look.
  json look(const Page& page, const json& looks) const {
    const std::string file = folder_.write("page.html", to_html(page));
    return json::parse(must_run(fmt::format("python3 {}/tests/python/look_at_page.py {} < {}",
                                            STAGECRAFT_SOURCE_DIR, file,
                                            folder_.write("looks.json", looks.dump()))));
  }
  // Values of scripts by name, on a screen.
  json values(const Page& page, const json& scripts) const {
    const json seen = look(page, {{{"width", 1280}, {"evaluate", scripts}}})[0];
    EXPECT_TRUE(seen["problems"].empty()) << seen["problems"];
    return seen["values"];
  }

  TempFolder folder_;
};

Page full_page() { return make_page(full_page_sample().sources()); }

TEST_F(PageInBrowser, FitsAPhoneAScreenAndPaperInLightAndDark) {
  json looks = json::array();
  for (const int width : {360, 1280}) {
    for (const bool dark : {false, true}) looks.push_back({{"width", width}, {"dark", dark}});
  }
  looks.push_back({{"width", 720}, {"print", true}});
  const json open_all = "for (const d of document.querySelectorAll('details')) d.open = true";
  for (json& wanted : looks) wanted["evaluate"]["open"] = open_all;
  const json seen = look(full_page(), looks);
  ASSERT_EQ(seen.size(), 5u);
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_LE(seen[i]["overflow"], 0) << looks[i];
    EXPECT_TRUE(seen[i]["problems"].empty()) << seen[i]["problems"];
    EXPECT_TRUE(seen[i]["requests"].empty()) << seen[i]["requests"];
    EXPECT_GE(seen[i]["contrast"][0], 4.5) << looks[i] << seen[i]["contrast"];  // WCAG 2.2, AA
  }
}

TEST_F(PageInBrowser, NamesStayText) {
  const json seen = values(
      full_page(),
      {{"broken", "typeof window.broken"},
       {"bold", "document.querySelectorAll('b').length"},
       {"model", "document.getElementById('model').textContent"},
       {"block", "document.querySelectorAll('#blocks tbody th')[3].textContent"},
       {"way", "document.querySelectorAll('#alternatives .way h3')[2].textContent"},
       {"device", "document.querySelector('#memory .rank h3').textContent.includes('</script>')"}});
  EXPECT_EQ(seen["broken"], "undefined");
  EXPECT_EQ(seen["bold"], 0);
  EXPECT_EQ(seen["model"], kMarkup);
  EXPECT_EQ(seen["block"], kMarkup);
  EXPECT_EQ(seen["way"], kMarkup);
  EXPECT_EQ(seen["device"], true);
}

TEST_F(PageInBrowser, MemoryBarsAreTheReports) {
  const PageSample sample = full_page_sample();
  const json bars =
      values(make_page(sample.sources()),
             {{"bars", R"([...document.querySelectorAll('#memory .rank .bar')].map(bar => ({
          total: Number(bar.dataset.total), text: bar.querySelector('.amount').textContent,
          parts: [...bar.querySelectorAll('.part')].reduce((sum, part) => sum + Number(part.dataset.bytes), 0),
          width: [...bar.querySelectorAll('.part')].reduce((sum, part) => sum + part.getBoundingClientRect().width, 0)
                 / bar.querySelector('.track').clientWidth})))"}})["bars"];
  ASSERT_EQ(bars.size(), 8u);  // predicted and measured of four ranks
  const double scale = static_cast<double>(Bytes::from_mib(120).count);
  for (size_t r = 0; r < 4; ++r) {
    const ReportRank& rank = sample.report.ranks[r];
    const int64_t predicted = rank.predicted.memory.total().count;
    EXPECT_EQ(bars[2 * r]["total"], predicted);
    EXPECT_EQ(bars[2 * r]["parts"], predicted);
    EXPECT_NEAR(bars[2 * r]["width"], static_cast<double>(predicted) / scale, 0.005);
    EXPECT_EQ(bars[2 * r + 1]["total"], rank.measured->memory.total().count);
    EXPECT_EQ(bars[2 * r + 1]["parts"], rank.measured->memory.total().count);
    EXPECT_EQ(bars[2 * r]["text"].get<std::string>().ends_with("DOES NOT FIT"), r == 3);
  }
}

TEST_F(PageInBrowser, HeadlineIsTheReports) {
  const PageSample sample = full_page_sample();
  const json seen = values(make_page(sample.sources()),
                           {{"step", "document.getElementById('figure-step').textContent"},
                            {"fullest", "document.getElementById('figure-fullest').textContent"},
                            {"reasons", "document.querySelectorAll('#reasons li').length"}});
  EXPECT_THAT(seen["step"].get<std::string>(),
              ::testing::HasSubstr(fmt::format("{:.1f} ms", sample.report.step.millis())));
  EXPECT_THAT(seen["step"].get<std::string>(), ::testing::HasSubstr("1.05 of predicted"));
  EXPECT_THAT(seen["fullest"].get<std::string>(), ::testing::HasSubstr("rank 3"));
  EXPECT_EQ(seen["reasons"], reasons_of(sample.report).size());
}

TEST_F(PageInBrowser, TimelineHasEveryActionMessageAndBubble) {
  const Page page = full_page();
  size_t actions = 0;
  for (const auto& rank : page.actions) actions += rank.size();
  const json seen = values(
      page,
      {{"actions", "document.querySelectorAll('#timeline .action').length"},
       {"messages", "document.querySelectorAll('#timeline .chart .message').length"},
       {"bubbles", "document.querySelectorAll('#timeline .bubble').length"},
       {"again", "document.querySelectorAll('#timeline .chart .again').length"},
       {"title", "document.querySelector('#timeline svg[role=img] title').textContent"},
       {"table", R"([...document.querySelectorAll('#timeline tbody tr')].map(row =>
          [...row.querySelectorAll('td')].reduce((sum, cell) => sum + parseFloat(cell.textContent.match(/\(([\d.]+)/)[1]), 0)))"},
       {"widths",
        R"([...document.querySelectorAll('#timeline .row')].map(row => row.getBoundingClientRect()).map(row =>
          [...document.querySelectorAll('#timeline .action, #timeline .bubble')].map(item => item.getBoundingClientRect())
            .filter(item => item.top === row.top).reduce((sum, item) => sum + item.width, 0) / row.width))"}});
  EXPECT_EQ(seen["actions"], actions);
  EXPECT_EQ(seen["messages"], page.messages.size());
  EXPECT_EQ(seen["bubbles"], page.bubbles.size());
  EXPECT_EQ(seen["again"], 6);  // one for each backward of stage 2
  EXPECT_EQ(seen["title"], "Timeline of one simulated step");
  ASSERT_EQ(seen["table"].size(), 4u);
  for (const json& sum : seen["table"]) EXPECT_NEAR(sum, 100, 0.3);
  for (const json& width : seen["widths"]) EXPECT_NEAR(width, 1, 0.01);
}

TEST_F(PageInBrowser, BarsOfTheTimelineAreReadByPointerAndKeys) {
  const json seen = values(full_page(), {{"pointer", R"((() => {
          document.querySelector('#timeline .action').dispatchEvent(new PointerEvent('pointermove', {bubbles: true}));
          return document.querySelector('#timeline output').textContent; })())"},
                                         {"keys", R"((() => {
          const box = document.querySelector('#timeline .scroll');
          for (const key of ['ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowLeft'])
            box.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
          return document.querySelector('#timeline output').textContent; })())"},
                                         {"zoom", R"((() => {
          const width = () => document.querySelector('#timeline svg[role=img]').getBoundingClientRect().width;
          const before = width();
          document.querySelector('[aria-label="zoom in"]').click();
          return width() / before; })())"}});
  EXPECT_THAT(
      seen["pointer"].get<std::string>(),
      ::testing::StartsWith("rank 0: forward of stage 0, micro-batch 0, 5.000 ms, from 0.000 ms"));
  EXPECT_THAT(seen["keys"].get<std::string>(), ::testing::StartsWith("rank 1: "));
  EXPECT_NEAR(seen["zoom"], 2, 0.01);
}

TEST_F(PageInBrowser, PointsOfTheFrontTellTheirPlan) {
  const json seen = values(
      full_page(), {{"points", "document.querySelectorAll('#front .point').length"},
                    {"chosen", "document.querySelectorAll('#front .point.chosen').length"},
                    {"says", R"((() => {
                               document.querySelectorAll('#front g[tabindex]')[1].focus();
                               return document.querySelector('#front output').textContent; })())"},
                    {"places", R"([...document.querySelectorAll('#front .point')].map(point => {
                               const plot = document.querySelector('#front svg').getBoundingClientRect();
                               const at = point.getBoundingClientRect();
                               return [(at.x + at.width / 2 - plot.x) / plot.width, (at.y + at.height / 2 - plot.y) / plot.height]; }))"}});
  EXPECT_EQ(seen["points"], 3);
  EXPECT_EQ(seen["chosen"], 1);
  EXPECT_THAT(seen["says"].get<std::string>(), ::testing::HasSubstr("2 stages × 2 replicas"));
  // Longer steps stand further right, less memory further down, all of it on the plot.
  double left = 0, above = 0;
  for (const json& place : seen["places"]) {
    EXPECT_GT(place[0], left + 0.1);
    EXPECT_GT(place[1], above);
    left = place[0];
    above = place[1];
  }
  EXPECT_LT(left, 1);
  EXPECT_LT(above, 0.9);
}

TEST_F(PageInBrowser, AlternativesStandBesideThePlan) {
  const json seen = values(
      full_page(),
      {{"names",
        "[...document.querySelectorAll('#alternatives .way h3')].map(name => name.textContent)"},
       {"bad",
        "[...document.querySelectorAll('#alternatives .amount.bad')].map(text => "
        "text.textContent)"}});
  ASSERT_EQ(seen["names"].size(), 3u);
  EXPECT_EQ(seen["names"][0], "This plan");
  EXPECT_THAT(seen["bad"].dump(), ::testing::HasSubstr("260.0 MiB DOES NOT FIT 120.0 MiB"));
}

TEST_F(PageInBrowser, WithoutAStudyItsSectionsAreLeftOut) {
  PageSample sample = full_page_sample();
  sample.report.front.clear();
  sample.report.alternatives.clear();
  const json seen = values(
      make_page(sample.sources()),
      {{"hidden", "[...document.querySelectorAll('section[hidden]')].map(section => section.id)"}});
  EXPECT_EQ(seen["hidden"], json({"front", "alternatives"}));
}

TEST_F(PageInBrowser, BlocksAreSortedAndFiltered) {
  const std::string first = "document.querySelector('#blocks tbody th').textContent";
  const json seen =
      values(full_page(), {{"rows", "document.querySelectorAll('#blocks tbody tr').length"},
                           {"sorted", R"((() => {
          const saved = [...document.querySelectorAll('#blocks thead button')].find(b => b.textContent === 'saved');
          saved.click(); saved.click(); return )" +
                                          first + "; })()"},
                           {"filtered", R"((() => {
          const field = document.getElementById('block-filter');
          field.value = 'BLOCK7 F+I'; field.dispatchEvent(new Event('input'));
          return [...document.querySelectorAll('#blocks tbody tr')].filter(row => !row.hidden).length + ': ' +
            document.getElementById('block-count').textContent; })())"}});
  EXPECT_EQ(seen["rows"], 8);
  EXPECT_EQ(seen["sorted"], "block7");
  EXPECT_EQ(seen["filtered"], "1: 1 of 8 blocks");
}

}  // namespace
}  // namespace stagecraft
