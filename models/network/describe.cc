#include "models/network/describe.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

struct Totals {
  int64_t parameters = 0;
  int64_t trainable_parameters = 0;
  int64_t tensors = 0;
  int64_t macs = 0;
  Bytes output_bytes;

  void add(const BlockGraph& graph, const Block& block) {
    parameters += block.parameters();
    if (block.trainable) trainable_parameters += block.parameters();
    tensors += static_cast<int64_t>(block.params.size());
    macs += block.macs();
    output_bytes += graph.values[block.output].bytes(1);
  }
};

// Named totals in the order in which the names come up.
template <typename T>
class Ordered {
 public:
  T& operator[](const std::string& name) {
    for (auto& [key, value] : entries_)
      if (key == name) return value;
    return entries_.emplace_back(name, T{}).second;
  }
  const std::vector<std::pair<std::string, T>>& entries() const { return entries_; }

 private:
  std::vector<std::pair<std::string, T>> entries_;
};

struct PartTotals {
  Totals all;
  Ordered<Totals> sections;
};

Ordered<PartTotals> add_up(std::span<const BlockGraph> graphs) {
  Ordered<PartTotals> parts;
  for (const BlockGraph& graph : graphs)
    for (const Block& block : graph.blocks) {
      PartTotals& part = parts[block.part];
      part.all.add(graph, block);
      part.sections[block.section].add(graph, block);
    }
  return parts;
}

std::string state_text(const Block& block) {
  return block.reaches_loss ? std::string(to_string(block.state)) : "not run";
}

nlohmann::ordered_json to_json(const Totals& totals) {
  return {{"parameters", totals.parameters},
          {"trainable_parameters", totals.trainable_parameters},
          {"tensors", totals.tensors},
          {"macs", totals.macs},
          {"output_bytes", totals.output_bytes.count}};
}

}  // namespace

std::string describe_text(std::span<const BlockGraph> graphs) {
  check(!graphs.empty(), "describe_text: no graph");
  std::string text = fmt::format("{} at {} x {}, one sample\n\n", graphs[0].model, graphs[0].width,
                                 graphs[0].height);
  const auto line = [&](auto name, auto kind, auto state, const auto&... numbers) {
    fmt::format_to(std::back_inserter(text), "{:<56}{:<15}{:<8}", name, kind, state);
    (fmt::format_to(std::back_inserter(text), "{:>15}", numbers), ...);
    text += '\n';
  };
  const auto gmacs = [](int64_t macs) {
    return fmt::format("{:.3f}", static_cast<double>(macs) / 1e9);
  };
  const auto mib = [](Bytes bytes) { return fmt::format("{:.2f}", bytes.mib()); };
  line("block", "kind", "state", "parameters", "GMACs", "output MiB");
  for (const BlockGraph& graph : graphs)
    for (const Block& block : graph.blocks)
      line(block.name, to_string(block.kind), state_text(block), block.parameters(),
           gmacs(block.macs()), mib(graph.values[block.output].bytes(1)));
  text += '\n';
  line("total", "", "", "parameters", "GMACs", "output MiB");
  const Ordered<PartTotals> parts = add_up(graphs);
  for (const auto& [name, part] : parts.entries()) {
    line(name, "", "", part.all.parameters, gmacs(part.all.macs), mib(part.all.output_bytes));
    for (const auto& [section, totals] : part.sections.entries())
      line("  " + section, "", "", totals.parameters, gmacs(totals.macs), mib(totals.output_bytes));
  }
  return text;
}

std::string describe_text(const BlockGraph& graph) { return describe_text({&graph, 1}); }

std::string describe_json(std::span<const BlockGraph> graphs) {
  check(!graphs.empty(), "describe_json: no graph");
  nlohmann::ordered_json json = {
      {"model", graphs[0].model}, {"width", graphs[0].width}, {"height", graphs[0].height}};
  json["blocks"] = nlohmann::ordered_json::array();
  for (const BlockGraph& graph : graphs)
    for (const Block& block : graph.blocks)
      json["blocks"].push_back({{"name", block.name},
                                {"part", block.part},
                                {"section", block.section},
                                {"kind", to_string(block.kind)},
                                {"state", to_string(block.state)},
                                {"trainable", block.trainable},
                                {"runs", block.reaches_loss},
                                {"parameters", block.parameters()},
                                {"macs", block.macs()},
                                {"output_bytes", graph.values[block.output].bytes(1).count}});
  const Ordered<PartTotals> parts = add_up(graphs);
  for (const auto& [name, part] : parts.entries()) {
    nlohmann::ordered_json& entry = json["parts"][name];
    entry = to_json(part.all);
    for (const auto& [section, totals] : part.sections.entries())
      entry["sections"][section] = to_json(totals);
  }
  return json.dump(2) + "\n";
}

std::string describe_json(const BlockGraph& graph) { return describe_json({&graph, 1}); }

}  // namespace stagecraft
