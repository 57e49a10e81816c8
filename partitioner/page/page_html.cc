// The data as JSON inside the template.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "partitioner/base/error.h"
#include "partitioner/page/page.h"
#include "partitioner/page/page_template.h"

namespace stagecraft {
namespace {

using nlohmann::json;

const char* kind_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::kForward:
      return "forward";
    case ActionKind::kBackwardInput:
      return "backward_input";
    case ActionKind::kBackwardWeight:
      return "backward_weight";
    default:
      return "backward";
  }
}

json step_json(const Page& page) {
  json ranks = json::array();
  for (const auto& rank : page.actions) {
    json actions = json::array();
    for (const PageAction& action : rank) {
      actions.push_back({{"text", action.text},
                         {"kind", kind_of(action.kind)},
                         {"stage", action.stage},
                         {"micro_batch", action.micro_batch},
                         {"start", action.start.count},
                         {"end", action.end.count},
                         {"recompute", action.recompute.count}});
    }
    ranks.push_back({{"actions", std::move(actions)}, {"bubbles", json::array()}});
  }
  for (const Bubble& bubble : page.bubbles) {
    ranks.at(static_cast<size_t>(bubble.rank))["bubbles"].push_back(
        {{"cause", key_of(bubble.cause)},
         {"start", bubble.start.count},
         {"end", bubble.end.count}});
  }
  json messages = json::array();
  for (const PageMessage& message : page.messages) {
    messages.push_back(
        {{"number", message.number},
         {"direction", message.direction == Direction::kForward ? "forward" : "backward"},
         {"from", message.from_rank},
         {"to", message.to_rank},
         {"micro_batch", message.micro_batch},
         {"bytes", message.bytes.count},
         {"start", message.start.count},
         {"end", message.end.count}});
  }
  return {{"makespan", page.makespan.count}, {"ranks", ranks}, {"messages", messages}};
}

json blocks_json(const std::vector<PageBlock>& blocks) {
  json out = json::array();
  for (const PageBlock& block : blocks) {
    out.push_back({{"name", block.name},
                   {"stage", block.stage},
                   {"state", block.state},
                   {"parameters", block.parameters},
                   {"trainable", block.trainable},
                   {"recompute", block.recompute},
                   {"forward", block.forward.count},
                   {"backward", block.backward.count},
                   {"saved", block.saved.count}});
  }
  return out;
}

// Names of what the page shows by key, in the order in which it shows it.
template <typename Kind, int count>
json names_json() {
  json out = json::array();
  for (int i = 0; i < count; ++i) {
    const auto kind = static_cast<Kind>(i);
    out.push_back({{"key", key_of(kind)}, {"name", to_string(kind)}});
  }
  return out;
}

// Inside a script element nothing is markup but `</script` and `<!--`; without `<` there is
// neither.
std::string script_safe(const json& data) {
  const std::string text = data.dump();
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

void put(std::string& text, std::string_view marker, const std::string& content) {
  const size_t at = text.find(marker);
  check(at != std::string::npos, "the page's template lacks a marker");
  text.replace(at, marker.size(), content);
}

}  // namespace

std::string to_html(const Page& page) {
  const json data = {{"model", page.model},
                     {"job", page.job},
                     {"reasons", page.reasons},
                     {"notes", page.notes},
                     {"report", json::parse(to_json(page.report))},
                     {"memory_lines", names_json<MemoryLine, kMemoryLines>()},
                     {"causes", names_json<BubbleCause, kBubbleCauses>()},
                     {"step", step_json(page)},
                     {"blocks", blocks_json(page.blocks)}};
  std::string html(page_template());
  put(html, "{{data}}", script_safe(data));
  return html;
}

}  // namespace stagecraft
