#include "partitioner/cost/cost_table.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"

namespace stagecraft {
namespace {

using nlohmann::json;

constexpr int64_t kMaxBytes = 64 << 20;
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

// An object of the file together with where it stands, so that every complaint names file and key.
class Reader {
 public:
  Reader(const json& object, std::string where, const std::string& file)
      : object_(object), where_(std::move(where)), file_(file) {
    if (!object.is_object()) fail("", "must be an object");
  }

  std::string text(const char* key) {
    const json& value = at(key);
    if (!value.is_string()) fail(key, "must be a text");
    return value.get<std::string>();
  }
  int64_t count(const char* key) { return count(key, at(key)); }
  bool flag(const char* key) {
    const json& value = at(key);
    if (!value.is_boolean()) fail(key, "must be true or false");
    return value.get<bool>();
  }
  std::vector<bool> flags(const char* key) {
    const json& value = at(key);
    if (!value.is_array()) fail(key, "must be a list");
    std::vector<bool> out;
    for (const json& member : value) {
      if (!member.is_boolean()) fail(key, "must hold true or false only");
      out.push_back(member.get<bool>());
    }
    return out;
  }
  Timing timing(const char* key) {
    const json& value = at(key);
    if (!value.is_array() || value.size() != 2) fail(key, "must be [median, spread]");
    return {.median = {count(key, value[0])}, .spread = {count(key, value[1])}};
  }
  const json& at(const char* key) {
    ++asked_;
    const auto found = object_.find(key);
    if (found == object_.end()) fail(key, "is missing");
    return *found;
  }
  void finish() {
    if (object_.size() != asked_) fail("", "holds keys that are not known");
  }

 private:
  int64_t count(const char* key, const json& value) {
    if (!value.is_number_integer() || value < 0 || value > (int64_t{1} << 60)) {
      fail(key, "must be a whole number from 0 to 2^60");
    }
    return value.get<int64_t>();
  }
  [[noreturn]] void fail(const char* key, const char* what) const {
    const std::string name = where_.empty() ? key : *key ? where_ + "." + key : where_;
    throw InputError(
        ExitCode::kDataInvalid,
        fmt::format("{}: {} {}; make the cost table again", file_,
                    name.empty() ? "the cost table" : fmt::format("`{}`", name), what));
  }

  const json& object_;
  std::string where_;
  const std::string& file_;
  size_t asked_ = 0;
};

BlockCost read_block(const json& object, const std::string& name, const std::string& file) {
  Reader reader(object, "blocks." + name, file);
  BlockCost cost{.forward = reader.timing("forward_ns"),
                 .backward_input = reader.timing("backward_input_ns"),
                 .backward_weight = reader.timing("backward_weight_ns"),
                 .saved_internal = {reader.count("saved_internal")},
                 .keeps_input = reader.flags("keeps_input"),
                 .keeps_output = reader.flag("keeps_output"),
                 .workspace_forward = {reader.count("workspace_forward")},
                 .workspace_backward = {reader.count("workspace_backward")},
                 .output = {reader.count("output")},
                 .parameters = {reader.count("parameters")}};
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
  const json root = json::parse(read_file(path, kMaxBytes), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    throw InputError(ExitCode::kDataInvalid,
                     fmt::format("{}: not JSON; make the cost table again", path));
  }
  Reader reader(root, "", path);
  if (reader.text("format") != kFormat) {
    throw InputError(ExitCode::kDataInvalid,
                     fmt::format("{}: `format` is not \"{}\"", path, kFormat));
  }
  CostTable table{.made_by = reader.text("made_by"),
                  .machine = reader.text("machine"),
                  .device = reader.text("device"),
                  .precision = reader.text("precision"),
                  .width = reader.count("width"),
                  .height = reader.count("height"),
                  .micro_batch = reader.count("micro_batch"),
                  .graph_hash = reader.text("graph_hash"),
                  .blocks = {}};
  const json& blocks = reader.at("blocks");
  if (!blocks.is_object()) {
    throw InputError(ExitCode::kDataInvalid, fmt::format("{}: `blocks` must be an object", path));
  }
  for (const auto& [name, object] : blocks.items()) {
    table.blocks.emplace(name, read_block(object, name, path));
  }
  reader.finish();
  return table;
}

void check_cost_table(const CostTable& table, const BlockGraph& graph, const std::string& precision,
                      int64_t micro_batch) {
  const auto refuse = [](const std::string& what, const auto& made, const auto& wanted) {
    throw ConfigError(
        fmt::format("the cost table was made for {} {}, this job has {}; make it again", what, made,
                    wanted),
        ExitCode::kPlanMismatch);
  };
  if (table.precision != precision) refuse("precision", table.precision, precision);
  if (table.micro_batch != micro_batch) refuse("micro-batch", table.micro_batch, micro_batch);
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
