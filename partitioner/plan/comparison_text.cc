// The comparison for people and for programs.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "partitioner/base/format.h"
#include "partitioner/plan/comparison.h"
#include "partitioner/plan/study_json.h"
#include "partitioner/plan/ways.h"

namespace stagecraft {
namespace {

std::string against_plan(Nanos step, Nanos plan) {
  if (step == plan || plan.count == 0) return "–";
  return fmt::format("{:+.1f} %", 100 * (step.seconds() / plan.seconds() - 1));
}

std::string fit_of(const SplitRow& row) {
  if (row.fits()) return "";
  return fmt::format("  {} TOO MUCH", mib_text(row.memory - row.device_memory));
}

template <typename Way>
void write_how(std::string& out, const std::vector<Way>& ways) {
  for (const Way& way : ways) out += fmt::format("    {}: {}\n", way.name, way.how);
}

nlohmann::json row_json(const SplitRow& row) {
  return {{"name", row.name},
          {"how", row.how},
          {"largest_over_mean", row.balance},
          {"step_seconds", row.step.seconds()},
          {"rank", row.rank},
          {"memory", row.memory.count},
          {"device_memory", row.device_memory.count},
          {"fits", row.fits()}};
}

}  // namespace

std::string advise(const std::vector<SplitRow>& splits) {
  const SplitRow* best = nullptr;
  for (size_t i = 1; i < splits.size(); ++i) {
    if (splits[i].fits() && (best == nullptr || splits[i].step < best->step)) best = &splits[i];
  }
  if (best == nullptr) return "None of the known splits fits these devices.";
  const double longer = 100 * (best->step.seconds() / splits.front().step.seconds() - 1);
  return fmt::format(
      "Of the known splits that fit \"{}\" is the fastest: {:.1f} % {} than this plan.", best->name,
      std::abs(longer), longer < 0 ? "faster" : "slower");
}

std::string to_text(const Comparison& comparison) {
  std::string out = comparison.title + "\n\nways to split it\n";
  out += fmt::format("    {:<38}{:>15}{:>12}{:>11}{:>9}{:>13}{:>13}\n", "", "slowest / mean",
                     "step", "", "fullest", "memory, MiB", "of device");
  for (const SplitRow& row : comparison.splits) {
    out +=
        fmt::format("    {:<38}{:>15.3f}{:>12}{:>11}{:>9}{:>13}{:>13}{}\n", row.name, row.balance,
                    millis_text(row.step), against_plan(row.step, comparison.splits.front().step),
                    fmt::format("rank {}", row.rank), grouped(row.memory.mib(), 1),
                    grouped(row.device_memory.mib(), 1), fit_of(row));
  }
  out += "\nwhat each evens out\n";
  write_how(out, comparison.splits);
  if (!comparison.alternatives.empty()) {
    out += "\nthe same training on the same devices, otherwise\n";
    out += ways_table(comparison.as_way, comparison.alternatives);
    out += "\nhow\n";
    write_how(out, comparison.alternatives);
  }
  out += fmt::format("\n{}\n", advise(comparison.splits));
  const std::string advice = advise(comparison.as_way, comparison.alternatives);
  if (!advice.empty()) out += advice + "\n";
  return out;
}

std::string to_json(const Comparison& comparison) {
  nlohmann::json splits = nlohmann::json::array(), alternatives = nlohmann::json::array();
  for (const SplitRow& row : comparison.splits) splits.push_back(row_json(row));
  for (const Alternative& other : comparison.alternatives) alternatives.push_back(to_json(other));
  return nlohmann::json{{"title", comparison.title},
                        {"splits", splits},
                        {"alternatives", alternatives},
                        {"advice",
                         {{"split", advise(comparison.splits)},
                          {"way", advise(comparison.as_way, comparison.alternatives)}}}}
      .dump();
}

}  // namespace stagecraft
