// From names to indices, with everything derived again and verified.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>

#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_yaml.h"
#include "partitioner/plan/plan.h"
#include "partitioner/schedule/verifier.h"

namespace stagecraft {
namespace {

constexpr int kUnplaced = -2;
constexpr int kMostUnplaced = 5;  // blocks that are named

bool has_messages(const std::vector<std::vector<Action>>& order) {
  return std::ranges::any_of(
      order, [](const auto& actions) { return std::ranges::any_of(actions, is_message); });
}

// Where the parts of a plan stand in its file. Without a file, or when the plan was changed since
// it was read, positions are unknown and left out.
class Positions {
 public:
  explicit Positions(const YamlNode* root) : root_(root) {}

  YamlMark key(std::string_view name) const {
    return root_ ? root_->mark_of_key(name) : YamlMark{};
  }
  YamlMark member(std::string_view list, size_t i) const {
    const YamlNode* node = root_ ? root_->find(list) : nullptr;
    return node != nullptr && i < node->items.size() ? node->items[i].mark : key(list);
  }
  YamlMark block(size_t stage, size_t i, std::string_view name) const {
    const YamlNode* stages = root_ ? root_->find("stages") : nullptr;
    if (stages == nullptr || stage >= stages->items.size()) return key("stages");
    const YamlNode* blocks = stages->items[stage].find("blocks");
    const bool there =
        blocks != nullptr && i < blocks->items.size() && blocks->items[i].text == name;
    return there ? blocks->items[i].mark : stages->items[stage].mark;
  }

 private:
  const YamlNode* root_;
};

class Resolver {
 public:
  Resolver(const Plan& plan, const BlockGraph& graph, YamlDocument& document, Positions positions)
      : plan_(plan), graph_(graph), document_(document), at_(positions) {}

  ResolvedPlan run() {
    check_hash();
    ResolvedPlan resolved;
    resolved.placement = place();
    document_.throw_if_errors();
    for (const std::string& fault : placement_faults(graph_, resolved.placement)) {
      document_.error(position_of(fault), fault);
    }
    resolved.micro_batch_sizes = micro_batch_sizes(plan_.train.batch, plan_.train.micro_batch);
    check_messages(resolved.placement);
    document_.throw_if_errors();
    schedule(resolved);
    document_.throw_if_errors();
    return resolved;
  }

 private:
  void check_hash() {
    const std::string hash = graph_hash(graph_);
    if (plan_.graph_hash == hash) return;
    document_.error(
        at_.key("graph_hash"),
        fmt::format(
            "the plan was made for another model, resolution or choice of what is trained: graph "
            "{} in the plan, {} from its `train` part; make the plan again",
            plan_.graph_hash.substr(0, 12), hash.substr(0, 12)));
    try {
      document_.throw_if_errors();
    } catch (const ConfigError& error) {
      throw ConfigError(error.what(), ExitCode::kPlanMismatch);
    }
  }

  // Index of the block `name`, which must not have been seen; an error at `mark` otherwise. Behind
  // more errors than are shown nobody looks any more.
  std::optional<size_t> take(const std::string& name, YamlMark mark) {
    if (document_.is_full()) return std::nullopt;
    const int index = graph_.find_block(name);
    if (index < 0) {
      std::vector<std::string> names;
      for (const Block& block : graph_.blocks) names.push_back(block.name);
      const std::string nearest = nearest_word(name, names);
      document_.error(
          mark, fmt::format("the model has no block {}{}", excerpt(name),
                            nearest.empty() ? "" : fmt::format(", did you mean {}?", nearest)));
      return std::nullopt;
    }
    const auto [first, is_new] = marks_.emplace(name, mark);
    if (!is_new) {
      document_.error(mark, fmt::format("block {} is placed twice, first in line {}", name,
                                        first->second.line));
      return std::nullopt;
    }
    return static_cast<size_t>(index);
  }

  Placement place() {
    Placement placement;
    placement.stage_of_block.assign(graph_.blocks.size(), kUnplaced);
    placement.recompute.assign(graph_.blocks.size(), false);
    placement.relays = plan_.relays;
    for (size_t s = 0; s < plan_.stages.size(); ++s) {
      placement.rank_of_stage.push_back(plan_.stages[s].rank);
      for (size_t i = 0; i < plan_.stages[s].blocks.size(); ++i) {
        const std::string& name = plan_.stages[s].blocks[i];
        const auto block = take(name, at_.block(s, i, name));
        if (block) placement.stage_of_block[*block] = static_cast<int>(s);
      }
    }
    for (size_t i = 0; i < plan_.replicated.size(); ++i) {
      const auto block = take(plan_.replicated[i], at_.member("replicated", i));
      if (block) placement.stage_of_block[*block] = -1;
    }
    int unplaced = 0;
    for (size_t b = 0; b < graph_.blocks.size(); ++b) {
      if (placement.stage_of_block[b] != kUnplaced) continue;
      if (++unplaced > kMostUnplaced) continue;
      document_.error(
          at_.key("stages"),
          fmt::format("block {} is on no stage; it stands between {} and {}", graph_.blocks[b].name,
                      name_of(static_cast<int>(b) - 1), name_of(static_cast<int>(b) + 1)));
    }
    if (unplaced > kMostUnplaced)
      document_.error(at_.key("stages"), fmt::format("{} on no stage; is the file cut short?",
                                                     unplaced == kMostUnplaced + 1
                                                         ? std::string("1 more block is")
                                                         : fmt::format("{} more blocks are",
                                                                       unplaced - kMostUnplaced)));
    for (size_t i = 0; i < plan_.recompute.size(); ++i) {
      const int block = graph_.find_block(plan_.recompute[i]);
      if (block < 0) {
        document_.error(at_.member("recompute", i),
                        fmt::format("the model has no block {}", excerpt(plan_.recompute[i])));
      } else {
        placement.recompute[static_cast<size_t>(block)] = true;
      }
    }
    return placement;
  }

  std::string name_of(int block) const {
    if (block < 0) return "the start";
    if (block >= static_cast<int>(graph_.blocks.size())) return "the end";
    return graph_.blocks[static_cast<size_t>(block)].name;
  }

  // The first placed block that a fault names.
  YamlMark position_of(const std::string& fault) const {
    size_t best_at = std::string::npos;
    YamlMark mark = at_.key("stages");
    size_t best_size = 0;
    for (const auto& [name, where] : marks_) {
      const size_t found = fault.find(name);
      if (found == std::string::npos) continue;
      // Longer names win at one place: "unet.conv_in" begins other names.
      if (found < best_at || (found == best_at && name.size() > best_size)) {
        best_at = found;
        best_size = name.size();
        mark = where;
      }
    }
    if (best_at != std::string::npos) return mark;
    int stage = -1;
    if (std::sscanf(fault.c_str(), "stage %d", &stage) == 1 && stage >= 0) {
      return at_.member("stages", static_cast<size_t>(stage));
    }
    return mark;
  }

  void check_messages(const Placement& placement) {
    if (plan_.messages.empty() || document_.has_errors()) return;
    const auto derived = transfers_of_micro_batch(graph_, placement, plan_.train.micro_batch);
    if (derived == plan_.messages) return;
    size_t i = 0;
    while (i < derived.size() && i < plan_.messages.size() && derived[i] == plan_.messages[i]) ++i;
    document_.error(i < plan_.messages.size() ? at_.member("messages", i) : at_.key("messages"),
                    fmt::format("the table of {} messages differs from the {} that the stages "
                                "need, first at number {}; delete "
                                "`messages` to have it derived",
                                plan_.messages.size(), derived.size(), i));
  }

  // No order needs more: F, I and W of every stage, S and R of every message, reduce and step.
  size_t most_actions(const ResolvedPlan& resolved) const {
    const size_t messages =
        transfers_of_micro_batch(graph_, resolved.placement, plan_.train.micro_batch).size();
    return resolved.micro_batch_sizes.size() * (3 * plan_.stages.size() + 2 * messages) +
           2 * static_cast<size_t>(resolved.placement.ranks());
  }

  std::vector<std::vector<Action>> explicit_order(const ResolvedPlan& resolved) {
    size_t count = 0;
    for (const auto& actions : plan_.order) count += actions.size();
    if (const size_t most = most_actions(resolved); count > most) {
      document_.error(at_.key("order"), fmt::format("order has {} actions, these stages and "
                                                    "micro-batches need at most {}",
                                                    count, most));
      return {};
    }
    std::vector<std::vector<Action>> order;
    for (size_t r = 0; r < plan_.order.size(); ++r) {
      std::vector<Action>& actions = order.emplace_back();
      for (const std::string& text : plan_.order[r]) {
        if (document_.is_full()) break;
        try {
          actions.push_back(parse_action(text));
        } catch (const ConfigError& error) {
          document_.error(at_.member("order", r), fmt::format("rank {}: {}", r, error.what()));
        }
      }
    }
    return order;
  }

  void schedule(ResolvedPlan& resolved) {
    const bool is_explicit = plan_.schedule == "explicit";
    const YamlMark mark = at_.key(is_explicit ? "order" : "schedule");
    const auto order = is_explicit
                           ? explicit_order(resolved)
                           : generate_order(plan_.schedule, graph_, resolved.placement,
                                            static_cast<int>(resolved.micro_batch_sizes.size()));
    if (document_.has_errors()) return;
    try {
      resolved.schedule =
          has_messages(order)
              ? complete_order(graph_, resolved.placement, order, resolved.micro_batch_sizes)
              : insert_messages(graph_, resolved.placement, order, resolved.micro_batch_sizes);
    } catch (const ConfigError& error) {
      document_.error(mark, error.what());
      return;
    }
    for (const std::string& fault :
         verify(graph_, resolved.placement, resolved.micro_batch_sizes, resolved.schedule)) {
      document_.error(mark, fault);
    }
  }

  const Plan& plan_;
  const BlockGraph& graph_;
  YamlDocument& document_;
  Positions at_;
  std::map<std::string, YamlMark> marks_;  // of placed blocks
};

// The file's tree for positions, or an empty one.
YamlDocument document_at(const std::string& path) {
  try {
    return YamlDocument::read(path);
  } catch (const Error&) {
    return YamlDocument::parse("{}", path);
  }
}

}  // namespace

ResolvedPlan resolve_plan(const Plan& plan, const BlockGraph& graph, const std::string& path) {
  YamlDocument document = document_at(path);
  const YamlNode root = document.root();
  return Resolver(plan, graph, document, Positions(&root)).run();
}

std::string plan_hash(const Plan& plan) {
  const TrainConfig& train = plan.train;
  std::string text = fmt::format(
      "plan {}\ngraph {}\nwidth {}\nheight {}\nprecision {}\nbatch {}\nmicro_batch {}\ntrainable "
      "{} {} {}\n"
      "replicas {}\nschedule {}\n",
      plan.version, plan.graph_hash, train.width, train.height, train.precision, train.batch,
      train.micro_batch, train.trainable.what, train.trainable.sd_locked,
      train.trainable.only_mid_control, plan.replicas, plan.schedule);
  if (plan.relays) text += "transfers relayed\n";
  for (const auto& rank : plan.order) text += fmt::format("order {}\n", fmt::join(rank, " "));
  for (const PlanStage& stage : plan.stages) {
    text += fmt::format("stage {} {}\n", stage.rank, fmt::join(stage.blocks, " "));
  }
  text += fmt::format("replicated {}\nrecompute {}\n", fmt::join(plan.replicated, " "),
                      fmt::join(plan.recompute, " "));
  return sha256_hex(text);
}

}  // namespace stagecraft
