#include "partitioner/plan/report_ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "partitioner/base/format.h"

namespace stagecraft {
namespace {

constexpr const char* kNothing = "–";
constexpr size_t kColumns = 8;  // ranks side by side

std::string ratio_of(double measured, double predicted) {
  return predicted > 0 ? fmt::format("{:.2f}", measured / predicted) : kNothing;
}

std::string mib_number(Bytes bytes) { return grouped(bytes.mib(), 1); }

// "first ... last (n)": blocks are in order, the file has them all.
std::string blocks_text(const std::vector<std::string>& blocks) {
  if (blocks.empty()) return "no blocks";
  if (blocks.size() == 1) return blocks.front();
  return fmt::format("{} blocks, {} ... {}", blocks.size(), blocks.front(), blocks.back());
}

// One row of a rank's table.
std::string row(const std::string& name, const std::string& predicted, const std::string& measured,
                const std::string& ratio) {
  return fmt::format("    {:<24}{:>12}{:>12}{:>8}\n", name, predicted, measured, ratio);
}

void write_measured_rank(std::string& out, size_t index, const ReportRank& rank) {
  const MeasuredRank& measured = *rank.measured;
  out += fmt::format("\nrank {} ({}, {} {}): {}\n", index, rank.predicted.device,
                     rank.stages.size() == 1 ? "stage" : "stages", fmt::join(rank.stages, ", "),
                     blocks_text(rank.blocks));
  out += row("", "predicted", "measured", "ratio");
  const double busy = rank.predicted.busy.millis(), busy_seen = measured.busy_seconds * 1e3;
  out += row(fmt::format("busy, ms ({:.1f} %)", rank.time_share * 100), grouped(busy, 1),
             grouped(busy_seen, 1), ratio_of(busy_seen, busy));
  const double on_a_core = measured.busy_cpu_seconds * 1e3;
  out += row("  of it on a core, ms", grouped(busy, 1), grouped(on_a_core, 1),
             ratio_of(on_a_core, busy));
  const auto line = [&](std::string_view name, Bytes predicted, Bytes seen) {
    if (predicted.count == 0 && seen.count == 0) return;
    out += row(fmt::format("{}, MiB", name), mib_number(predicted), mib_number(seen),
               ratio_of(seen.mib(), predicted.mib()));
  };
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto id = static_cast<MemoryLine>(i);
    const Bytes predicted = rank.predicted.memory[id];
    if (is_measured(id)) {
      line(to_string(id), predicted, measured.memory[id]);
    } else if (predicted.count > 0) {
      out += row(fmt::format("{}, MiB", to_string(id)), mib_number(predicted), kNothing, kNothing);
    }
  }
  line("total", rank.predicted.memory.total(), measured.memory.total());
  const Bytes other = std::max(Bytes{}, measured.grown_heap - measured.peak_allocator);
  out += fmt::format(
      "    resident size {}: base {}, tensors {}, libraries read in since {}, other heap {}\n",
      mib_text(measured.peak_rss), mib_text(measured.base_rss), mib_text(measured.peak_allocator),
      mib_text(measured.grown_files), mib_text(other));
  out += fmt::format("    processor time {:.1f} ms a step\n", measured.cpu_seconds * 1e3);
}

// Ranks `first` .. `last` - 1 side by side.
void write_columns(std::string& out, const std::vector<ReportRank>& ranks, size_t first,
                   size_t last) {
  const auto write = [&](std::string_view name, const auto& cell) {
    out += fmt::format("    {:<16}", name);
    for (size_t r = first; r < last; ++r) out += fmt::format("{:>11}", cell(r));
    out += '\n';
  };
  out += "\nmemory at the peak of each rank, MiB\n";
  write("", [](size_t r) { return fmt::format("rank {}", r); });
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto id = static_cast<MemoryLine>(i);
    const bool is_held = std::ranges::any_of(
        ranks, [id](const ReportRank& rank) { return rank.predicted.memory[id].count > 0; });
    if (!is_held) continue;
    write(to_string(id), [&](size_t r) { return mib_number(ranks[r].predicted.memory[id]); });
  }
  write("total", [&](size_t r) { return mib_number(ranks[r].predicted.memory.total()); });
}

}  // namespace

std::string memory_lines(const Report& report) {
  std::string out;
  const std::vector<ReportRank>& ranks = report.ranks;
  if (report.measured_step) {
    for (size_t r = 0; r < ranks.size(); ++r) write_measured_rank(out, r, ranks[r]);
    return out;
  }
  for (size_t first = 0; first < ranks.size(); first += kColumns) {
    write_columns(out, ranks, first, std::min(first + kColumns, ranks.size()));
  }
  return out;
}

std::string rank_table(const Report& report) {
  size_t width = 6;
  for (const ReportRank& rank : report.ranks) {
    width = std::max(width, rank.predicted.device.size());
  }
  std::string out = fmt::format("\nrank  {:<{}}  {:>11}  {:>7}  {:>11}  {:>14}  {}\n", "device",
                                width, "busy", "of step", "memory, MiB", "of device", "blocks");
  for (size_t r = 0; r < report.ranks.size(); ++r) {
    const PlannedRank& rank = report.ranks[r].predicted;
    const Bytes total = rank.memory.total();
    const double share =
        report.step.count > 0 ? 100 * rank.busy.seconds() / report.step.seconds() : 0;
    out += fmt::format(
        "{:>4}  {:<{}}  {:>11}  {:>5.0f} %  {:>11}  {:>14}  {}{}\n", r, rank.device, width,
        millis_text(rank.busy), share, mib_number(total), mib_number(rank.device_memory),
        total <= rank.device_memory ? "" : "DOES NOT FIT; ", blocks_text(report.ranks[r].blocks));
  }
  return out;
}

}  // namespace stagecraft
