#include "partitioner/plan/measured.h"

#include <fmt/format.h>

#include "partitioner/base/files.h"
#include "partitioner/base/strict_json.h"
#include "partitioner/plan/measured_json.h"

namespace stagecraft {
namespace {

using nlohmann::json;

constexpr int64_t kMaxMeasuredBytes = 4 << 20;
constexpr const char* kMeasuredFormat = "stagecraft measured 2";

MeasuredRank read_rank(const json& object, const std::string& where, const std::string& path) {
  JsonFields fields(object, where, path);
  MeasuredRank rank;
  JsonFields memory(fields.object("memory"), where + ".memory", path);
  for (int line = 0; line < kMemoryLines; ++line) {
    const auto id = static_cast<MemoryLine>(line);
    if (is_measured(id)) rank.memory[id] = {memory.count(std::string(key_of(id)).c_str())};
  }
  memory.finish();
  rank.peak_allocator = {fields.count("peak_allocator")};
  rank.peak_rss = {fields.count("peak_rss")};
  rank.base_rss = {fields.count("base_rss")};
  rank.grown_files = {fields.count("grown_files")};
  rank.grown_heap = {fields.count("grown_heap")};
  rank.busy_seconds = fields.number("busy_seconds");
  rank.busy_cpu_seconds = fields.number("busy_cpu_seconds");
  rank.step_seconds = fields.number("step_seconds");
  rank.cpu_seconds = fields.number("cpu_seconds");
  fields.finish();
  return rank;
}

}  // namespace

bool is_measured(MemoryLine line) {
  return line != MemoryLine::kCommBuffers && line != MemoryLine::kSlack;
}

json to_json(const RankMemory& memory) {
  json out = json::object();
  for (int line = 0; line < kMemoryLines; ++line) {
    const auto id = static_cast<MemoryLine>(line);
    out[std::string(key_of(id))] = memory[id].count;
  }
  return out;
}

json to_json(const MeasuredRank& rank) {
  json memory = to_json(rank.memory);
  for (int line = 0; line < kMemoryLines; ++line) {
    const auto id = static_cast<MemoryLine>(line);
    if (!is_measured(id)) memory.erase(std::string(key_of(id)));
  }
  return {{"memory", std::move(memory)},           {"peak_allocator", rank.peak_allocator.count},
          {"peak_rss", rank.peak_rss.count},       {"base_rss", rank.base_rss.count},
          {"grown_files", rank.grown_files.count}, {"grown_heap", rank.grown_heap.count},
          {"busy_seconds", rank.busy_seconds},     {"busy_cpu_seconds", rank.busy_cpu_seconds},
          {"step_seconds", rank.step_seconds},     {"cpu_seconds", rank.cpu_seconds}};
}

std::string to_json(const Measured& measured) {
  std::string ranks;
  for (const MeasuredRank& rank : measured.ranks) {
    ranks += fmt::format("{}    {}", ranks.empty() ? "" : ",\n", to_json(rank).dump());
  }
  const auto text = [](const std::string& value) { return json(value).dump(); };
  return fmt::format(
      "{{\n  \"format\": {},\n  \"machine\": {},\n  \"plan_hash\": {},\n  \"ranks\": [\n{}\n  ],\n"
      "  \"steps\": {}\n}}\n",
      text(kMeasuredFormat), text(measured.machine), text(measured.plan_hash), ranks,
      measured.steps);
}

void write_measured(const Measured& measured, const std::string& path) {
  write_file_atomically(path, to_json(measured));
}

Measured read_measured(const std::string& path) {
  const json root = read_json(path, kMaxMeasuredBytes);
  JsonFields fields = JsonFields::of_file(root, path, kMeasuredFormat);
  Measured measured;
  measured.plan_hash = fields.text("plan_hash");
  measured.machine = fields.text("machine");
  measured.steps = fields.count("steps");
  const json& ranks = fields.list("ranks");
  for (size_t r = 0; r < ranks.size(); ++r) {
    measured.ranks.push_back(read_rank(ranks[r], fmt::format("ranks[{}]", r), path));
  }
  fields.finish();
  return measured;
}

}  // namespace stagecraft
