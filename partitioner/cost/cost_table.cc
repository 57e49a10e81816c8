#include "partitioner/cost/cost_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTableBytes = 4 << 20;  // SD 1.5's has 200 KiB
constexpr const char* kFormat = "stagecraft cost table 1";

json to_json(const Timing& timing) {
  return json::array({timing.median.count, timing.spread.count});
}

json to_json(const BlockCost& cost) {
  return {{"forward_ns", to_json(cost.forward)},
          {"backward_input_ns", to_json(cost.backward_input)},
          {"backward_weight_ns", to_json(cost.backward_weight)},
          {"saved_internal", cost.saved_internal.count},
          {"keeps_input", cost.keeps_input},
          {"keeps_output", cost.keeps_output},
          {"workspace_forward", cost.workspace_forward.count},
          {"workspace_backward", cost.workspace_backward.count},
          {"output", cost.output.count},
          {"parameters", cost.parameters.count}};
}

// Nanoseconds and bytes of a block for one micro-batch: more than an hour, 4 TiB. Whole plans are
// summed from them, so that nothing overflows.
constexpr int64_t kMost = int64_t{1} << 42;

int64_t at_most(int64_t value, JsonFields& fields, const char* key) {
  if (value > kMost) fields.fail(key, "must be at most 2^42");
  return value;
}

Timing read_timing(JsonFields& fields, const char* key) {
  const std::vector<int64_t> values = fields.counts(key);
  if (values.size() != 2) fields.fail(key, "must be [median, spread]");
  return {.median = {at_most(values[0], fields, key)}, .spread = {at_most(values[1], fields, key)}};
}

BlockCost read_block(const json& object, const std::string& name, const std::string& file) {
  JsonFields reader(object, "blocks." + name, file);
  const auto bytes = [&reader](const char* key) {
    return Bytes{at_most(reader.count(key), reader, key)};
  };
  BlockCost cost;
  cost.forward = read_timing(reader, "forward_ns");
  cost.backward_input = read_timing(reader, "backward_input_ns");
  cost.backward_weight = read_timing(reader, "backward_weight_ns");
  cost.saved_internal = bytes("saved_internal");
  cost.keeps_input = reader.flags("keeps_input");
  cost.keeps_output = reader.flag("keeps_output");
  cost.workspace_forward = bytes("workspace_forward");
  cost.workspace_backward = bytes("workspace_backward");
  cost.output = bytes("output");
  cost.parameters = bytes("parameters");
  reader.finish();
  return cost;
}

}  // namespace

std::string to_json(const CostTable& table) {
  std::string blocks;
  for (const auto& [name, cost] : table.blocks) {
    blocks += fmt::format("{}    {}: {}", blocks.empty() ? "" : ",\n", json(name).dump(),
                          to_json(cost).dump());
  }
  const auto text = [](const std::string& value) { return json(value).dump(); };
  return fmt::format(
      "{{\n  \"blocks\": {{\n{}\n  }},\n  \"device\": {},\n  \"format\": {},\n"
      "  \"graph_hash\": {},\n  \"height\": {},\n  \"machine\": {},\n  \"made_by\": {},\n"
      "  \"micro_batch\": {},\n  \"precision\": {},\n  \"width\": {}\n}}\n",
      blocks, text(table.device), text(kFormat), text(table.graph_hash), table.height,
      text(table.machine), text(table.made_by), table.micro_batch, text(table.precision),
      table.width);
}

void write_cost_table(const CostTable& table, const std::string& path) {
  write_file_atomically(path, to_json(table));
}

CostTable read_cost_table(const std::string& path) {
  const json root = read_json(path, kMaxTableBytes);
  JsonFields reader = JsonFields::of_file(root, path, kFormat);
  CostTable table;
  table.made_by = reader.text("made_by");
  table.machine = reader.text("machine");
  table.device = reader.text("device");
  table.precision = reader.text("precision");
  table.width = reader.count("width");
  table.height = reader.count("height");
  table.micro_batch = reader.count("micro_batch");
  table.graph_hash = reader.text("graph_hash");
  for (const auto& [name, object] : reader.object("blocks").items()) {
    table.blocks.emplace(name, read_block(object, name, path));
  }
  reader.finish();
  return table;
}

void check_cost_table(const CostTable& table, const BlockGraph& graph, const CostUse& use) {
  const auto refuse = [](const std::string& what, const auto& made, const auto& wanted) {
    throw ConfigError(
        fmt::format("the cost table was made for {} {}, this job has {}; make it again", what, made,
                    wanted),
        ExitCode::kPlanMismatch);
  };
  if (table.device != use.device) refuse("device", table.device, use.device);
  if (table.precision != use.precision) refuse("precision", table.precision, use.precision);
  if (table.micro_batch != use.micro_batch) {
    refuse("micro-batch", table.micro_batch, use.micro_batch);
  }
  if (table.width != graph.width || table.height != graph.height) {
    refuse("pixels", fmt::format("{}x{}", table.width, table.height),
           fmt::format("{}x{}", graph.width, graph.height));
  }
  if (const std::string hash = graph_hash(graph); table.graph_hash != hash) {
    refuse("graph", table.graph_hash.substr(0, 12), hash.substr(0, 12));
  }
  for (const Block& block : graph.blocks) {
    const auto found = table.blocks.find(block.name);
    if (found == table.blocks.end()) {
      throw ConfigError(fmt::format("the cost table has no block {}; make it again", block.name),
                        ExitCode::kPlanMismatch);
    }
    if (found->second.keeps_input.size() != block.inputs.size()) {
      throw ConfigError(
          fmt::format("the cost table's block {} has {} inputs, the graph's has {}; make it again",
                      block.name, found->second.keeps_input.size(), block.inputs.size()),
          ExitCode::kPlanMismatch);
    }
  }
}

}  // namespace stagecraft
