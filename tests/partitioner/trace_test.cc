// Trace files: what viewers read out of them is what was put in.
#include "partitioner/trace/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "partitioner/base/error.h"
#include "partitioner/trace/step_trace.h"
#include "tests/support/chain_graph.h"
#include "tests/support/made_up_costs.h"

namespace stagecraft {
namespace {

using nlohmann::json;
using testing::chain_graph;
using testing::chain_placement;
using testing::plain_cluster;
using testing::uniform_costs;

// Events of one phase, in the order of the file.
std::vector<json> events_of(const json& trace, const std::string& phase) {
  std::vector<json> events;
  for (const json& event : trace.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

// Microseconds of the file as whole nanoseconds.
int64_t nanos(const json& micros) { return std::llround(micros.get<double>() * 1e3); }

Trace two_tracks() {
  return {.processes = {{.name = "rank 0", .tracks = {"compute", "to rank 1"}},
                        {.name = "rank 1", .tracks = {"compute"}}},
          .events = {{.name = "F0.0",
                      .category = "forward",
                      .process = 0,
                      .track = 0,
                      .start = {1'234'567},
                      .duration = {890},
                      .arguments = {{"stage", 3}}},
                     {.name = "F1.0",
                      .category = "forward",
                      .process = 1,
                      .track = 0,
                      .start = {2'000'000},
                      .duration = {1},
                      .arguments = {}}},
          .arrows = {{.from = 0, .to = 1}}};
}

TEST(Trace, TimesAreMicrosecondsToTheNanosecond) {
  const std::string text = to_json(two_tracks());
  EXPECT_NE(text.find("\"ts\":1234.567,\"dur\":0.890"), std::string::npos) << text;
  const json event = events_of(json::parse(text), "X").at(0);
  EXPECT_EQ(event["name"], "F0.0");
  EXPECT_EQ(event["args"]["stage"], 3);
}

TEST(Trace, EveryTrackHasANumberAndANameOfItsOwn) {
  const json trace = json::parse(to_json(two_tracks()));
  std::map<std::pair<int, int>, std::string> names;
  std::set<int> threads;
  for (const json& event : events_of(trace, "M")) {
    if (event["name"] != "thread_name") continue;
    names[{event["pid"], event["tid"]}] = event["args"]["name"];
    threads.insert(event["tid"].get<int>());
  }
  EXPECT_EQ(names.size(), 3u);
  EXPECT_EQ(threads.size(), 3u);
  const json second = events_of(trace, "X").at(1);
  EXPECT_EQ(names.at({second["pid"], second["tid"]}), "compute");
  EXPECT_EQ(second["pid"], 1);
}

TEST(Trace, ArrowsJoinTheStartsOfTheirEvents) {
  const json trace = json::parse(to_json(two_tracks()));
  const json from = events_of(trace, "s").at(0), to = events_of(trace, "f").at(0);
  EXPECT_EQ(from["id"], to["id"]);
  EXPECT_EQ(nanos(from["ts"]), 1'234'567);
  EXPECT_EQ(nanos(to["ts"]), 2'000'000);
  EXPECT_EQ(to["bp"], "e");
}

TEST(Trace, NamesOfAllKindsStayJson) {
  Trace trace = two_tracks();
  trace.processes[0].name = "a \"quoted\" \\ name\n\xff";
  const json parsed = json::parse(to_json(trace));
  EXPECT_EQ(events_of(parsed, "M").at(0)["args"]["name"], "a \"quoted\" \\ name\n\ufffd");
}

TEST(Trace, AnEventOnNoTrackIsRefused) {
  Trace trace = two_tracks();
  trace.events[1].track = 1;
  EXPECT_THROW(to_json(trace), InternalError);
  trace = two_tracks();
  trace.arrows[0].to = 2;
  EXPECT_THROW(to_json(trace), InternalError);
}

struct SimulatedTrace {
  Schedule schedule;
  SimulatedStep step;
  json trace;
};

SimulatedTrace simulated_trace() {
  const BlockGraph graph = chain_graph(4);
  const Placement placement = chain_placement(4);
  const std::vector<int64_t> sizes(6, 1);
  SimulatedTrace out;
  out.schedule =
      insert_messages(graph, placement, generate_order("1f1b", graph, placement, 6), sizes);
  out.step = simulate(graph, placement, ClusterCosts(uniform_costs(graph)),
                      plain_cluster(4, 1e10, {3}), out.schedule, sizes);
  out.trace = json::parse(to_json(
      trace_of_step(out.schedule, out.step.actions, {"rank 0", "rank 1", "rank 2", "rank 3"})));
  return out;
}

TEST(StepTrace, HoldsEveryActionWithTheTimesOfTheSimulation) {
  const SimulatedTrace simulated = simulated_trace();
  const std::vector<json> events = events_of(simulated.trace, "X");
  ASSERT_EQ(events.size(), simulated.step.actions.size());
  for (size_t i = 0; i < events.size(); ++i) {
    const TimedAction& timed = simulated.step.actions[i];
    EXPECT_EQ(events[i]["pid"], timed.rank);
    EXPECT_EQ(events[i]["name"], to_string(simulated.schedule.ranks[timed.rank][timed.index]));
    EXPECT_EQ(nanos(events[i]["ts"]), timed.start.count);
    EXPECT_EQ(nanos(events[i]["dur"]), (timed.end - timed.start).count);
  }
}

TEST(StepTrace, EventsOfATrackDoNotCross) {
  const SimulatedTrace simulated = simulated_trace();
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> tracks;
  for (const json& event : events_of(simulated.trace, "X")) {
    tracks[event["tid"]].emplace_back(nanos(event["ts"]), nanos(event["ts"]) + nanos(event["dur"]));
  }
  EXPECT_GT(tracks.size(), 4u);
  for (auto& [track, spans] : tracks) {
    std::ranges::sort(spans);
    for (size_t i = 1; i < spans.size(); ++i) {
      EXPECT_LE(spans[i - 1].second, spans[i].first) << "track " << track;
    }
  }
}

TEST(StepTrace, AnArrowForEveryMessage) {
  const SimulatedTrace simulated = simulated_trace();
  ASSERT_GT(simulated.schedule.messages.size(), 0u);
  EXPECT_EQ(events_of(simulated.trace, "s").size(), simulated.schedule.messages.size());
}

TEST(StepTrace, AnActionThatIsNotInTheScheduleIsRefused) {
  const SimulatedTrace simulated = simulated_trace();
  EXPECT_THROW(trace_of_step(simulated.schedule, {{.rank = 4, .index = 0, .start = {}, .end = {}}},
                             {"a", "b", "c", "d"}),
               InternalError);
}

}  // namespace
}  // namespace stagecraft
