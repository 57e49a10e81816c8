#include "pipeline/rehearse/rehearsal_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

// Where the rank's list ends in the simulation.
Nanos planned_end(const SimulatedStep& step, size_t rank) {
  Nanos end;
  for (const TimedAction& action : step.actions) {
    if (action.rank == static_cast<int>(rank)) end = std::max(end, action.end);
  }
  return end;
}

double ratio_of(Nanos rehearsed, Nanos simulated) {
  return simulated.count > 0 ? rehearsed.seconds() / simulated.seconds() : 0;
}

std::string with_spread(const Timing& timing) {
  return fmt::format("{} ± {:.1f}", millis_text(timing.median), timing.spread.millis());
}

double gb_per_s(double bandwidth) { return bandwidth / 1e9; }

nlohmann::json json_of(const Timing& timing) {
  return {{"median", timing.median.seconds()}, {"spread", timing.spread.seconds()}};
}

}  // namespace

Timing spread_of(std::vector<Nanos> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double part) {
    return samples[static_cast<size_t>(part * static_cast<double>(samples.size() - 1) + 0.5)];
  };
  return {.median = at(0.5), .spread = {(at(0.75) - at(0.25)).count / 2}};
}

double RehearsedLink::bandwidth() const {
  return static_cast<double>(bytes.count) / std::max(time.seconds(), 1e-9);
}

void simulate_beside(const Rehearsal& rehearsal, RehearsalFigures& figures) {
  const auto step_on = [&](const Cluster& cluster) {
    return simulate(rehearsal.graph, rehearsal.resolved.placement, rehearsal.costs, cluster,
                    rehearsal.resolved.schedule, rehearsal.resolved.micro_batch_sizes)
        .makespan;
  };
  Cluster cluster = rehearsal.cluster;
  for (const RehearsedLink& link : figures.links) {
    cluster.exceptions[{link.from, link.to}] = {.bandwidth = link.bandwidth(), .latency = {}};
  }
  figures.simulated = step_on(cluster);
  cluster.exceptions.clear();
  cluster.link = cluster.between_hosts = {.bandwidth = 1e18, .latency = {}};
  figures.simulated_free_links = step_on(cluster);
}

std::string to_text(const Rehearsal& rehearsal, const RehearsalFigures& figures) {
  const RehearsalOptions& options = rehearsal.options;
  std::string text = fmt::format(
      "rehearsal of {}: {} ranks, {} micro-batches, {}; {} steps after one that does not count\n"
      "block times {}{}{}\n\n",
      options.plan, rehearsal.ranks(), rehearsal.resolved.micro_batch_sizes.size(),
      rehearsal.plan.schedule, figures.step.size(), rehearsal.block_times,
      options.scale == 1 ? "" : fmt::format(", times {}", options.scale),
      options.scale_memory == 1 ? "" : fmt::format("; bytes times {}", options.scale_memory));
  text += fmt::format("{:<6}{:>14}{:>20}{:>14}{:>20}{:>14}{:>14}{:>14}\n", "rank", "end planned",
                      "rehearsed", "busy planned", "rehearsed", "held planned", "held", "resident");
  for (size_t r = 0; r < figures.ranks.size(); ++r) {
    const RehearsedRank& rank = figures.ranks[r];
    text += fmt::format(
        "{:<6}{:>14}{:>20}{:>14}{:>20}{:>14}{:>14}{:>14}\n", r,
        millis_text(planned_end(rehearsal.planned, r)), with_spread(spread_of(rank.end)),
        millis_text(rehearsal.planned.busy[r]), with_spread(spread_of(rank.busy)),
        mib_text(held_bytes(rehearsal.memory[r])), mib_text(rank.held), mib_text(rank.peak_rss));
  }
  if (!figures.links.empty()) {
    text += fmt::format("\n{:<10}{:>10}{:>14}{:>12}{:>12}\n", "link", "messages", "a step",
                        "GB/s seen", "planned");
  }
  const auto steps = static_cast<int64_t>(figures.step.size());
  for (const RehearsedLink& link : figures.links) {
    text += fmt::format("{:<10}{:>10}{:>14}{:>12.2f}{:>12.2f}\n",
                        fmt::format("{} > {}", link.from, link.to), link.messages / steps,
                        mib_text({link.bytes.count / steps}), gb_per_s(link.bandwidth()),
                        gb_per_s(rehearsal.cluster.between(link.from, link.to).bandwidth));
  }
  const Timing step = spread_of(figures.step);
  text += fmt::format("\nstep {} ms, and {} between steps\n", with_spread(step),
                      millis_text(spread_of(figures.between).median));
  const auto beside = [&](const std::string& what, Nanos simulated) {
    text += fmt::format("  / simulated with {}, {}: {:.3f}\n", what, millis_text(simulated),
                        ratio_of(step.median, simulated));
  };
  beside("the links seen here", figures.simulated);
  beside("links that cost nothing", figures.simulated_free_links);
  beside(fmt::format("the links of {}", rehearsal.cluster.name), rehearsal.planned.makespan);
  return text;
}

std::string to_json(const Rehearsal& rehearsal, const RehearsalFigures& figures) {
  const Timing step = spread_of(figures.step);
  nlohmann::json ranks = nlohmann::json::array(), links = nlohmann::json::array();
  for (size_t r = 0; r < figures.ranks.size(); ++r) {
    const RehearsedRank& rank = figures.ranks[r];
    ranks.push_back({{"rank", r},
                     {"end_planned_seconds", planned_end(rehearsal.planned, r).seconds()},
                     {"end_seconds", json_of(spread_of(rank.end))},
                     {"busy_planned_seconds", rehearsal.planned.busy[r].seconds()},
                     {"busy_seconds", json_of(spread_of(rank.busy))},
                     {"held_planned_bytes", held_bytes(rehearsal.memory[r]).count},
                     {"held_bytes", rank.held.count},
                     {"peak_rss_bytes", rank.peak_rss.count}});
  }
  for (const RehearsedLink& link : figures.links) {
    links.push_back(
        {{"from", link.from},
         {"to", link.to},
         {"messages", link.messages},
         {"bytes", link.bytes.count},
         {"seconds", link.time.seconds()},
         {"bytes_per_second", link.bandwidth()},
         {"planned_bytes_per_second", rehearsal.cluster.between(link.from, link.to).bandwidth}});
  }
  const nlohmann::json out = {
      {"code", 0},
      {"plan", rehearsal.options.plan},
      {"plan_hash", plan_hash(rehearsal.plan)},
      {"block_times", rehearsal.block_times},
      {"scale", rehearsal.options.scale},
      {"scale_memory", rehearsal.options.scale_memory},
      {"steps", figures.step.size()},
      {"step_seconds", json_of(step)},
      {"between_steps_seconds", spread_of(figures.between).median.seconds()},
      {"simulated_seconds", figures.simulated.seconds()},
      {"simulated_free_links_seconds", figures.simulated_free_links.seconds()},
      {"planned_seconds", rehearsal.planned.makespan.seconds()},
      {"ratio", ratio_of(step.median, figures.simulated)},
      {"ratio_free_links", ratio_of(step.median, figures.simulated_free_links)},
      {"ranks", std::move(ranks)},
      {"links", std::move(links)}};
  return out.dump();
}

}  // namespace stagecraft
