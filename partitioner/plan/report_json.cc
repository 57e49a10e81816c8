// The report for programs: the numbers of the text, in bytes and seconds.
#include <nlohmann/json.hpp>

#include "partitioner/plan/measured_json.h"
#include "partitioner/plan/report.h"
#include "partitioner/plan/study_json.h"
#include "partitioner/plan/ways.h"

namespace stagecraft {
namespace {

using nlohmann::json;

// measured / predicted of every line that has both.
json ratios(const RankMemory& measured, const RankMemory& predicted) {
  json out = json::object();
  const auto ratio = [](Bytes a, Bytes b) {
    return static_cast<double>(a.count) / static_cast<double>(b.count);
  };
  for (int i = 0; i < kMemoryLines; ++i) {
    const auto id = static_cast<MemoryLine>(i);
    if (is_measured(id) && predicted[id].count > 0) {
      out[std::string(key_of(id))] = ratio(measured[id], predicted[id]);
    }
  }
  if (predicted.total().count > 0) out["total"] = ratio(measured.total(), predicted.total());
  return out;
}

json to_json(const ReportRank& rank) {
  const PlannedRank& predicted = rank.predicted;
  json out = {{"stages", rank.stages},
              {"blocks", rank.blocks},
              {"device", predicted.device},
              {"device_memory", predicted.device_memory.count},
              {"time_share", rank.time_share},
              {"fits", predicted.memory.total() <= predicted.device_memory},
              {"predicted",
               {{"busy_seconds", predicted.busy.seconds()},
                {"memory", to_json(predicted.memory)},
                {"total", predicted.memory.total().count}}}};
  if (rank.measured) {
    out["measured"] = to_json(*rank.measured);
    for (int i = 0; i < kMemoryLines; ++i) {
      const auto id = static_cast<MemoryLine>(i);
      if (!is_measured(id)) out["measured"]["memory"][std::string(key_of(id))] = nullptr;
    }
    out["measured"]["total"] = rank.measured->memory.total().count;
    out["ratio"] = ratios(rank.measured->memory, predicted.memory);
  }
  if (rank.bubbles) {
    for (int i = 0; i < kBubbleCauses; ++i) {
      const std::string key(key_of(static_cast<BubbleCause>(i)));
      out["bubbles_seconds"][key] = (*rank.bubbles)[static_cast<size_t>(i)].seconds();
    }
  }
  return out;
}

template <typename Value>
json list_json(const std::vector<Value>& values) {
  json out = json::array();
  for (const Value& value : values) out.push_back(to_json(value));
  return out;
}

json to_json(const Balance& balance) {
  return {{"time", balance.time}, {"memory", balance.memory}};
}

json to_json(const MemoryAccount& account) {
  json lines = json::array();
  for (const AccountLine& line : account.lines) {
    lines.push_back({{"name", line.name},
                     {"one_device", line.one_device.count},
                     {"data_parallel", line.data_parallel.count}});
  }
  const AccountLine sum = account.sum();
  return {{"lines", lines},
          {"one_device", sum.one_device.count},
          {"data_parallel", sum.data_parallel.count}};
}

}  // namespace

nlohmann::json to_json(const FrontPoint& point) {
  return {
      {"step_seconds", point.step.seconds()}, {"peak", point.peak.count},
      {"replicas", point.replicas},           {"stages", point.stages},
      {"micro_batch", point.micro_batch},     {"schedule", point.schedule},
      {"recomputed", point.recomputed},       {"transfers", point.relays ? "relayed" : "direct"},
      {"is_chosen", point.is_chosen}};
}

nlohmann::json to_json(const Alternative& other) {
  nlohmann::json out = {{"name", other.name},
                        {"how", other.how},
                        {"memory", other.memory.count},
                        {"device_memory", other.device_memory.count},
                        {"fits", other.fits()},
                        {"step_seconds", other.step.seconds()},
                        {"exposed_seconds", other.exposed.seconds()}};
  if (!other.trains_the_same()) out["other_batch"] = other.other_batch;
  return out;
}

std::string to_json(const Report& report) {
  const Bytes memory = report.one_device.device_memory;
  json done_right = to_json(report.done_right);
  const AccountLine right = report.done_right.sum();
  done_right["one_device_fits"] = right.one_device <= memory;
  done_right["data_parallel_fits"] = right.data_parallel <= report.data_parallel.device_memory;
  json out = {{"title", report.title},
              {"cost_table", report.cost_table},
              {"ranks", list_json(report.ranks)},
              {"step_seconds", report.step.seconds()},
              {"bubble", report.bubble},
              {"balance", to_json(report.balance)},
              {"one_device",
               {{"device", report.one_device.device},
                {"device_memory", memory.count},
                {"step_seconds", report.one_device.busy.seconds()}}},
              {"data_parallel_step_seconds", report.data_parallel.busy.seconds()},
              {"known_trainers_static", to_json(report.known_trainers)},
              {"done_right", done_right},
              {"front", list_json(report.front)},
              {"alternatives", list_json(report.alternatives)},
              {"advice", advise(report.as_way, report.alternatives)}};
  if (report.more.batch > 0) {
    out["more_micro_batches"] = {{"batch", report.more.batch},
                                 {"micro_batch", report.more.micro_batch},
                                 {"bubble", report.more.bubble}};
  }
  if (report.measured_balance) {
    out["measured"] = {{"step_seconds", report.measured_step->seconds()},
                       {"bubble", *report.measured_bubble},
                       {"balance", to_json(*report.measured_balance)}};
  }
  if (report.seen_on_one_device) {
    const AccountLine sum = report.known_trainers.sum();
    const Bytes need = *report.seen_on_one_device + sum.data_parallel - sum.one_device;
    out["seen_on_one_device"] = {{"one_device", report.seen_on_one_device->count},
                                 {"data_parallel", need.count},
                                 {"data_parallel_fits", need <= memory}};
  }
  return out.dump();
}

}  // namespace stagecraft
