// The report for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "partitioner/base/format.h"
#include "partitioner/plan/report.h"

namespace stagecraft {
namespace {

constexpr const char* kNone = "–";

std::string ratio_text(double measured, double predicted) {
  return predicted > 0 ? fmt::format("{:.2f}", measured / predicted) : kNone;
}

std::string mib(Bytes bytes) { return grouped(bytes.mib(), 1); }

// "first ... last (n)": blocks are in order, the file has them all.
std::string blocks_text(const std::vector<std::string>& blocks) {
  if (blocks.empty()) return "no blocks";
  if (blocks.size() == 1) return blocks.front();
  return fmt::format("{} blocks, {} ... {}", blocks.size(), blocks.front(), blocks.back());
}

// One row of a rank's table; without measurements it ends with the prediction.
std::string row(const std::string& name, const std::string& predicted,
                const std::optional<std::string>& measured, const std::string& ratio) {
  std::string text = fmt::format("    {:<24}{:>12}", name, predicted);
  if (measured) text += fmt::format("{:>12}{:>8}", *measured, ratio);
  return text + "\n";
}

void write_rank(std::string& out, size_t index, const ReportRank& rank) {
  out += fmt::format("\nrank {} ({}, {} {}): {}\n", index, rank.predicted.device,
                     rank.stages.size() == 1 ? "stage" : "stages", fmt::join(rank.stages, ", "),
                     blocks_text(rank.blocks));
  const MeasuredRank* measured = rank.measured ? &*rank.measured : nullptr;
  using Text = std::optional<std::string>;
  out += row("", "predicted", measured ? Text("measured") : std::nullopt, "ratio");
  const double busy = rank.predicted.busy.millis();
  const double busy_seen = measured ? measured->busy_seconds * 1e3 : 0;
  out += row(fmt::format("busy, ms ({:.1f} %)", rank.time_share * 100), grouped(busy, 1),
             measured ? Text(grouped(busy_seen, 1)) : std::nullopt, ratio_text(busy_seen, busy));
  const auto line = [&](std::string_view name, Bytes predicted, Bytes seen) {
    if (predicted.count == 0 && seen.count == 0) return;
    out += row(fmt::format("{}, MiB", name), mib(predicted),
               measured ? Text(mib(seen)) : std::nullopt, ratio_text(seen.mib(), predicted.mib()));
  };
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto id = static_cast<MemoryLine>(i);
    const Bytes predicted = rank.predicted.memory[id];
    if (!measured || is_measured(id)) {
      line(to_string(id), predicted, measured ? measured->memory[id] : Bytes{});
    } else if (predicted.count > 0) {
      out += row(fmt::format("{}, MiB", to_string(id)), mib(predicted), kNone, kNone);
    }
  }
  line("total", rank.predicted.memory.total(), measured ? measured->memory.total() : Bytes{});
  if (measured) {
    out += fmt::format(
        "    resident size grew by {} over the base of {}; the model without base says {}\n",
        mib_text(measured->peak_rss - measured->base_rss), mib_text(measured->base_rss),
        mib_text(rank.predicted.memory.without_base()));
    out += fmt::format("    processor time {:.1f} ms a step\n", measured->cpu_seconds * 1e3);
  }
  const Bytes total = rank.predicted.memory.total();
  out += fmt::format("    {} {} of memory\n",
                     total <= rank.predicted.device_memory ? "fits" : "DOES NOT FIT",
                     mib_text(rank.predicted.device_memory));
}

void write_balance(std::string& out, const Report& report) {
  out += fmt::format("\nbalance (max / mean; 1 is even)\n");
  out +=
      fmt::format("    time {:.3f}, memory {:.3f}, bubble {:.1f} %, step {}\n", report.balance.time,
                  report.balance.memory, report.bubble * 100, millis_text(report.step));
  if (report.measured_balance) {
    out += fmt::format(
        "    measured: time {:.3f}, memory {:.3f}, bubble {:.1f} %, step {} ({} of predicted)\n",
        report.measured_balance->time, report.measured_balance->memory,
        *report.measured_bubble * 100, millis_text(*report.measured_step),
        ratio_text(report.measured_step->millis(), report.step.millis()));
  }
}

void write_account(std::string& out, const MemoryAccount& account, const char* sum_name) {
  constexpr const char* kRow = "    {:<52}{:>12}{:>15}\n";
  out += fmt::format(kRow, "MiB", "one device", "data parallel");
  for (const AccountLine& line : account.lines) {
    out += fmt::format(kRow, line.name, mib(line.one_device), mib(line.data_parallel));
  }
  const AccountLine sum = account.sum();
  out += fmt::format(kRow, sum_name, mib(sum.one_device), mib(sum.data_parallel));
}

std::string fit_text(Bytes need, const PlannedRank& device) {
  return fmt::format("{} {} {} ({})", mib_text(need),
                     need <= device.device_memory ? "fits" : "DOES NOT FIT",
                     mib_text(device.device_memory), device.device);
}

void write_known(std::string& out, const Report& report) {
  out +=
      "\nthe same training as the known trainers do it (fp32 parameters; activations, workspace "
      "and context come on top)\n";
  write_account(out, report.known_trainers, "static sum");
  const AccountLine sum = report.known_trainers.sum();
  const Bytes more = sum.data_parallel - sum.one_device;
  out += fmt::format(
      "    Data parallel needs {} more, on every rank alike: the reducer's buckets hold one "
      "element for each parameter\n"
      "    with requires_grad, frozen or not.\n",
      mib_text(more));
  if (report.seen_on_one_device) {
    const Bytes seen = *report.seen_on_one_device;
    out += fmt::format("    You saw {} on one device: {}.\n", mib_text(seen),
                       fit_text(seen, report.one_device));
    out += fmt::format("    Data parallel then needs {} + {}: {}.\n", mib_text(seen),
                       mib_text(more), fit_text(seen + more, report.one_device));
  } else {
    const Bytes memory = report.one_device.device_memory;
    out +=
        sum.data_parallel > memory
            ? fmt::format("    The static sum alone: {}.\n",
                          fit_text(sum.data_parallel, report.one_device))
            : fmt::format(
                  "    {} of {} are left for activations, workspace and context. With the memory "
                  "that your trainer\n    takes on one device, --seen-on-one-device MIB says "
                  "whether data parallel fits.\n",
                  mib_text(memory - sum.data_parallel), mib_text(memory));
  }
}

void write_done_right(std::string& out, const Report& report) {
  out +=
      "\ndone right (frozen weights once and in half when mixed, no gradients for them, buckets as "
      "views, encoders not resident)\n";
  write_account(out, report.done_right, "sum");
  const AccountLine sum = report.done_right.sum();
  out +=
      fmt::format("    one device:    {}, step {}\n", fit_text(sum.one_device, report.one_device),
                  millis_text(report.one_device.busy));
  out += fmt::format("    data parallel: {}, step {}\n",
                     fit_text(sum.data_parallel, report.data_parallel),
                     millis_text(report.data_parallel.busy));
  Bytes fullest;
  for (const ReportRank& rank : report.ranks) {
    fullest = std::max(fullest, rank.predicted.memory.total());
  }
  out += fmt::format("    this pipeline: {} on its fullest rank, step {}\n", mib_text(fullest),
                     millis_text(report.step));
  const bool fits = sum.data_parallel <= report.data_parallel.device_memory;
  if (fits && report.data_parallel.busy < report.step && report.ranks.size() > 1) {
    out +=
        "    Data parallel done right fits these devices and is predicted to be faster; the "
        "pipeline is for smaller devices,\n"
        "    larger pictures, slower links or smaller batches.\n";
  } else if (fits && report.one_device.busy < report.step && report.ranks.size() > 1) {
    out += "    One device alone fits the job and is predicted to be faster.\n";
  }
}

}  // namespace

std::string balance_text(const Report& report) {
  std::string out = fmt::format("memory balance: {}\ncosts: {}\n", report.title, report.cost_table);
  for (size_t r = 0; r < report.ranks.size(); ++r) write_rank(out, r, report.ranks[r]);
  write_balance(out, report);
  return out;
}

std::string to_text(const Report& report) {
  std::string out = balance_text(report);
  write_known(out, report);
  write_done_right(out, report);
  return out;
}

}  // namespace stagecraft
