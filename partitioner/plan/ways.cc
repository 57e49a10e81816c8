#include "partitioner/plan/ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "partitioner/base/error.h"
#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

// Within this part of each other two steps are called equally long.
constexpr double kAlike = 0.01;

// "8.3 %", of `reference`.
std::string percent_text(Nanos difference, Nanos reference) {
  return fmt::format("{:.1f} %", 100 * static_cast<double>(difference.count) /
                                     static_cast<double>(reference.count));
}

std::string link_text(const Alternative& way) {
  if (way.exposed.count == 0) return "";
  return fmt::format(", of which it waits {} for the link", millis_text(way.exposed));
}

std::string memory_text(const Alternative& way) {
  return fmt::format("{} of {}", mib_text(way.memory), mib_text(way.device_memory));
}

// For the way that would be fastest but for its memory.
std::string too_large_text(const Alternative& way, const Alternative& ours) {
  return fmt::format("\"{}\" would be {} faster, but needs {}, {} too much.", way.name,
                     percent_text(ours.step - way.step, ours.step), memory_text(way),
                     mib_text(way.memory - way.device_memory));
}

}  // namespace

Alternative as_way(const Plan& plan) {
  check(!plan.ranks.empty(), "a plan without predictions is set beside others");
  const PlannedRank& fullest = *std::ranges::max_element(plan.ranks, {}, &PlannedRank::fullness);
  return {.name = plan.stages.size() == 1 ? std::string("this plan")
                                          : fmt::format("this plan: {} stages", plan.stages.size()),
          .how = "memory of the fullest device",
          .memory = fullest.memory.total(),
          .device_memory = fullest.device_memory,
          .step = plan.predicted_step,
          .exposed = {}};
}

std::string ways_table(const Alternative& ours, const std::vector<Alternative>& others) {
  std::string out = fmt::format("    {:<44}{:>13}{:>13}{:>13}{:>13}\n", "", "memory, MiB",
                                "of device", "step", "exposed");
  const auto row = [&out](const Alternative& way) {
    out += fmt::format(
        "    {:<44}{:>13}{:>13}{:>13}{:>13}{}{}\n", way.name, grouped(way.memory.mib(), 1),
        grouped(way.device_memory.mib(), 1), millis_text(way.step),
        way.exposed.count > 0 ? millis_text(way.exposed) : "–", way.fits() ? "" : "  DOES NOT FIT",
        way.trains_the_same() ? "" : fmt::format("  ({} samples)", way.other_batch));
  };
  row(ours);
  for (const Alternative& other : others) row(other);
  return out;
}

std::string advise(const Alternative& ours, const std::vector<Alternative>& others) {
  const Alternative *fastest = nullptr, *tempting = nullptr, *leanest = nullptr;
  for (const Alternative& other : others) {
    if (!other.trains_the_same()) continue;
    if (leanest == nullptr || other.memory < leanest->memory) leanest = &other;
    const Alternative*& best = other.fits() ? fastest : tempting;
    if (best == nullptr || other.step < best->step) best = &other;
  }
  if (leanest == nullptr) return "";
  const std::string temptation = tempting != nullptr && tempting->step < ours.step &&
                                         (fastest == nullptr || tempting->step < fastest->step)
                                     ? fmt::format(" {}", too_large_text(*tempting, ours))
                                     : "";
  if (fastest == nullptr) {
    return fmt::format("Nothing else fits: \"{}\", the leanest of the others, needs {}.{}",
                       leanest->name, memory_text(*leanest), temptation);
  }
  const auto gap = static_cast<double>((fastest->step - ours.step).count);
  const std::string steps =
      fmt::format("{} a step against {}", millis_text(fastest->step), millis_text(ours.step));
  if (std::abs(gap) <= kAlike * static_cast<double>(ours.step.count)) {
    return fmt::format("\"{}\" fits ({}) and is as fast: {}.{}", fastest->name,
                       memory_text(*fastest), steps, temptation);
  }
  if (gap < 0) {
    return fmt::format(
        "\"{}\" fits ({}) and is {} faster: {}. Prefer it for this job; a pipeline is for smaller "
        "devices, larger pictures, {}.{}",
        fastest->name, memory_text(*fastest), percent_text(ours.step - fastest->step, ours.step),
        steps,
        fastest->exposed.count > 0 ? "slower links or smaller batches"
                                   : "faster links or larger batches",
        temptation);
  }
  return fmt::format(
      "Of the other ways that fit \"{}\" is the fastest: it takes {} longer than this plan "
      "({}){}.{}",
      fastest->name, percent_text(fastest->step - ours.step, ours.step), steps, link_text(*fastest),
      temptation);
}

}  // namespace stagecraft
