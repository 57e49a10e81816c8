// Reads the trace of a step that ran, and holds it against its plan.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/network/build.h"
#include "partitioner/plan/plan.h"
#include "tests/support/programs.h"

namespace stagecraft {

struct TracedEvent {
  std::string name;
  double start = 0, end = 0;  // microseconds
};

// By rank, in the file's order; `F0.1` is one of "compute", `S3` one of "messages".
struct TracedRank {
  std::vector<TracedEvent> compute, messages;
};

inline std::map<int, TracedRank> traced_ranks(const std::string& path) {
  std::map<int, TracedRank> ranks;
  const nlohmann::json trace = nlohmann::json::parse(text_of(path));
  for (const nlohmann::json& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    TracedEvent read{.name = event.at("name"), .start = event.at("ts"), .end = event.at("ts")};
    read.end += event.at("dur").get<double>();
    TracedRank& rank = ranks[event.at("pid")];
    const bool is_message = read.name[0] == 'S' || read.name[0] == 'R';
    (is_message ? rank.messages : rank.compute).push_back(read);
  }
  return ranks;
}

// Every rank ran the plan's compute actions in the plan's order, one after the other, and every
// message left before it arrived: all of it on one clock.
inline void expect_trace_of_plan(const std::string& trace, const std::string& plan_path) {
  const Plan plan = read_plan(plan_path);
  const TrainConfig& train = plan.train;
  const BlockGraph graph = build_training_graph(read_model_config(train.model), train.width,
                                                train.height, train.trainable, train.precision);
  const Schedule schedule = resolve_plan(plan, graph, plan_path).schedule;
  std::map<int, TracedRank> ranks = traced_ranks(trace);
  ASSERT_EQ(ranks.size(), schedule.ranks.size());
  std::map<std::string, TracedEvent> messages;
  for (auto& [rank, traced] : ranks) {
    SCOPED_TRACE(rank);
    std::vector<std::string> planned, ran;
    size_t planned_messages = 0;
    for (const Action& action : schedule.ranks.at(static_cast<size_t>(rank))) {
      if (!is_message(action)) planned.push_back(to_string(action));
      planned_messages += is_message(action);
    }
    std::ranges::stable_sort(traced.compute, {}, &TracedEvent::start);
    for (size_t i = 0; i < traced.compute.size(); ++i) {
      ran.push_back(traced.compute[i].name);
      if (i == 0) continue;
      EXPECT_GE(traced.compute[i].start, traced.compute[i - 1].end) << ran.back();
    }
    EXPECT_EQ(ran, planned);
    EXPECT_EQ(traced.messages.size(), planned_messages);
    for (const TracedEvent& message : traced.messages) messages[message.name] = message;
  }
  for (size_t m = 0; m < schedule.messages.size(); ++m) {
    const std::string number = std::to_string(m);
    EXPECT_LE(messages.at("S" + number).start, messages.at("R" + number).end) << number;
  }
}

}  // namespace stagecraft
