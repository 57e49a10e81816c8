// The report for people.
#include <fmt/format.h>

#include <algorithm>

#include "partitioner/base/format.h"
#include "partitioner/plan/report.h"
#include "partitioner/plan/report_ranks.h"
#include "partitioner/plan/ways.h"

namespace stagecraft {
namespace {

std::string ratio_text(double measured, double predicted) {
  return predicted > 0 ? fmt::format("{:.2f}", measured / predicted) : "–";
}

std::string mib(Bytes bytes) { return grouped(bytes.mib(), 1); }

// The first lines, for whoever has never heard of stages.
void write_head(std::string& out, const Report& report) {
  out += report.title + "\n";
  const auto excess = [](const ReportRank& rank) {
    return rank.predicted.memory.total() - rank.predicted.device_memory;
  };
  const auto fullest = std::ranges::max_element(
      report.ranks, {}, [](const ReportRank& rank) { return rank.predicted.fullness(); });
  const auto too_full = std::ranges::count_if(
      report.ranks, [&](const ReportRank& rank) { return excess(rank).count > 0; });
  out += fmt::format(
      "A step takes {}. The fullest device, rank {}, holds {} of its {}; {}.\n",
      millis_text(report.step), fullest - report.ranks.begin(),
      mib_text(fullest->predicted.memory.total()), mib_text(fullest->predicted.device_memory),
      too_full == 0 ? std::string("everything fits")
                    : fmt::format("{} of {} DO NOT FIT", too_full, report.ranks.size()));
  out += fmt::format("costs: {}\n", report.cost_table);
}

// What more micro-batches would buy.
std::string more_text(const Report& report) {
  const MoreMicroBatches& more = report.more;
  if (more.batch == 0 || more.bubble >= report.bubble) return "";
  return fmt::format(
      " With this split {} would lower that to {:.1f} %; another may be better then.",
      more.batch > report.batch ? fmt::format("a batch of {}", more.batch)
                                : fmt::format("micro-batches of {}", more.micro_batch),
      more.bubble * 100);
}

void write_balance(std::string& out, const Report& report) {
  if (report.ranks.size() > 1) {
    out += fmt::format(
        "\nOf {} ranks the slowest computes {:.3f} times the mean, the fullest holds {:.3f} times "
        "the mean.\nThey wait {:.1f} % of the step (the bubble).{}\n",
        report.ranks.size(), report.balance.time, report.balance.memory, report.bubble * 100,
        more_text(report));
  }
  if (report.measured_balance) {
    out += fmt::format(
        "\nmeasured: slowest {:.3f}, fullest {:.3f} times the mean, bubble {:.1f} %, step {} ({} "
        "of "
        "predicted)\n",
        report.measured_balance->time, report.measured_balance->memory,
        *report.measured_bubble * 100, millis_text(*report.measured_step),
        ratio_text(report.measured_step->millis(), report.step.millis()));
  }
}

void write_ways(std::string& out, const Report& report) {
  if (report.alternatives.empty()) return;
  out += "\nthe same training on the same devices, otherwise\n";
  out += ways_table(report.as_way, report.alternatives);
  out += fmt::format("    {}\n", advise(report.as_way, report.alternatives));
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
}

}  // namespace

std::string balance_text(const Report& report) {
  std::string out;
  write_head(out, report);
  out += memory_lines(report);
  write_balance(out, report);
  return out + rank_table(report);
}

std::string summary_text(const Report& report) {
  std::string out;
  write_head(out, report);
  out += memory_lines(report);
  write_ways(out, report);
  write_balance(out, report);
  return out + rank_table(report);
}

std::string to_text(const Report& report) {
  std::string out;
  write_head(out, report);
  out += memory_lines(report);
  write_known(out, report);
  write_done_right(out, report);
  write_ways(out, report);
  write_balance(out, report);
  return out + rank_table(report);
}

}  // namespace stagecraft
