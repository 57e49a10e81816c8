// The plan file read as far as that goes without a graph.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "partitioner/base/strict_yaml.h"
#include "partitioner/plan/plan.h"
#include "partitioner/plan/train_fields.h"

namespace stagecraft {
namespace {

constexpr int64_t kMaxCount = int64_t{1} << 60;  // bytes, nanoseconds
constexpr int kMaxStages = 256;
constexpr int kMaxRanks = kMaxClusterRanks;
constexpr int64_t kMaxSamples = 65536;
constexpr size_t kMaxFront = 4096, kMaxAlternatives = 64;

void read_version(YamlDocument& document, Fields& fields, Plan& plan) {
  fields.integer("version", &plan.version, {0, 1'000'000});
  if (plan.version != kPlanVersion) {
    document.error(
        fields.mark("version"),
        fmt::format("this is a version {} plan, this program reads version {}; make the plan again",
                    plan.version, kPlanVersion));
  }
}

void read_graph_hash(YamlDocument& document, Fields& fields, Plan& plan) {
  fields.string("graph_hash", &plan.graph_hash);
  const bool hex = plan.graph_hash.size() == 64 &&
                   plan.graph_hash.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!plan.graph_hash.empty() && !hex) {
    document.error(fields.mark("graph_hash"), "graph_hash must be 64 hexadecimal digits");
  }
}

void read_order(YamlDocument& document, Fields& fields, Plan& plan) {
  std::vector<std::string> lines;
  fields.strings("order", &lines, kOptional);
  for (const std::string& line : lines) {
    std::istringstream words(line);
    std::vector<std::string>& actions = plan.order.emplace_back();
    for (std::string word; words >> word;) actions.push_back(word);
    if (actions.empty()) document.error(fields.mark("order"), "order has a rank without actions");
  }
  if (plan.schedule == "explicit" && !fields.has("order")) {
    document.error(fields.mark("schedule"), "schedule is explicit, but `order` is missing");
  }
  if (plan.schedule != "explicit" && fields.has("order")) {
    document.error(fields.mark("order"),
                   fmt::format("`order` is given, but schedule is {}; write `schedule: explicit`",
                               plan.schedule));
  }
}

void read_stages(YamlDocument& document, Fields& fields, Plan& plan) {
  const YamlNode* stages = fields.list("stages");
  if (stages == nullptr) return;
  if (stages->items.empty() || stages->items.size() > kMaxStages) {
    document.error(stages->mark, fmt::format("stages has {} entries, allowed are 1 to {}",
                                             stages->items.size(), kMaxStages));
    return;
  }
  for (size_t s = 0; s < stages->items.size(); ++s) {
    PlanStage& stage = plan.stages.emplace_back();
    Fields entry(document, stages->items[s], fmt::format("stages[{}]", s));
    entry.integer("rank", &stage.rank, {0, kMaxRanks - 1});
    entry.strings("blocks", &stage.blocks);
    entry.finish();
    if (entry.has("blocks") && stage.blocks.empty()) {
      document.error(entry.mark("blocks"),
                     fmt::format("stage {} is empty; delete it or move blocks here", s));
    }
  }
}

void read_memory(YamlDocument& document, Fields& fields, RankMemory& memory) {
  const YamlNode* node = fields.map("memory");
  if (node == nullptr) return;
  Fields lines(document, *node, fields.name("memory"));
  for (int line = 0; line < kMemoryLines; ++line) {
    const auto id = static_cast<MemoryLine>(line);
    const std::string key(key_of(id));
    lines.integer(key.c_str(), &memory[id].count, {0, kMaxCount});
  }
  lines.finish();
}

PlannedRank read_planned_rank(YamlDocument& document, const YamlNode& node,
                              const std::string& where) {
  PlannedRank rank;
  Fields fields(document, node, where);
  fields.string("device", &rank.device);
  fields.integer("device_memory", &rank.device_memory.count, {0, kMaxCount});
  fields.integer("busy_ns", &rank.busy.count, {0, kMaxCount});
  read_memory(document, fields, rank.memory);
  fields.finish();
  return rank;
}

// At most `limit` entries, with an error for more.
const YamlNode* list_up_to(YamlDocument& document, Fields& fields, const char* key, size_t limit) {
  const YamlNode* list = fields.list(key, kOptional);
  if (list == nullptr || list->items.size() <= limit) return list;
  document.error(list->mark, fmt::format("{} has {} entries, allowed are up to {}",
                                         fields.name(key), list->items.size(), limit));
  return nullptr;
}

// Whether transfers are relayed; direct unless said.
bool read_transfers(Fields& fields) {
  std::string transfers = "direct";
  fields.string("transfers", &transfers, kOptional, {"direct", "relayed"});
  return transfers == "relayed";
}

void read_front(YamlDocument& document, Fields& predicted, Plan& plan) {
  const YamlNode* list = list_up_to(document, predicted, "front", kMaxFront);
  if (list == nullptr) return;
  for (size_t i = 0; i < list->items.size(); ++i) {
    FrontPoint point;
    Fields entry(document, list->items[i], fmt::format("predicted.front[{}]", i));
    entry.integer("step_ns", &point.step.count, {0, kMaxCount});
    entry.integer("peak", &point.peak.count, {0, kMaxCount});
    entry.integer("replicas", &point.replicas, {1, kMaxClusterRanks});
    entry.integer("stages", &point.stages, {1, kMaxStages});
    entry.integer("micro_batch", &point.micro_batch, {1, kMaxSamples});
    entry.string("schedule", &point.schedule);
    entry.integer("recomputed", &point.recomputed, {0, 1 << 20});
    point.relays = read_transfers(entry);
    entry.boolean("is_chosen", &point.is_chosen);
    entry.finish();
    plan.front.push_back(std::move(point));
  }
}

void read_alternatives(YamlDocument& document, Fields& predicted, Plan& plan) {
  const YamlNode* list = list_up_to(document, predicted, "alternatives", kMaxAlternatives);
  if (list == nullptr) return;
  for (size_t i = 0; i < list->items.size(); ++i) {
    Alternative other;
    Fields entry(document, list->items[i], fmt::format("predicted.alternatives[{}]", i));
    entry.string("name", &other.name);
    entry.string("how", &other.how);
    entry.integer("memory", &other.memory.count, {0, kMaxCount});
    entry.integer("device_memory", &other.device_memory.count, {0, kMaxCount});
    entry.integer("step_ns", &other.step.count, {0, kMaxCount});
    entry.integer("exposed_ns", &other.exposed.count, {0, kMaxCount});
    entry.integer("other_batch", &other.other_batch, {1, kMaxCount}, kOptional);
    entry.finish();
    plan.alternatives.push_back(std::move(other));
  }
}

// What was predicted for another plan, before this one was edited, is read and left out.
void read_predicted(YamlDocument& document, Fields& fields, Plan& of_file) {
  const YamlNode* node = fields.map("predicted", kOptional);
  if (node == nullptr) return;
  Plan plan = of_file;
  Fields predicted(document, *node, "predicted");
  std::string hash;
  predicted.string("plan_hash", &hash, kOptional);
  predicted.string("cost_table", &plan.cost_table);
  predicted.integer("step_ns", &plan.predicted_step.count, {0, kMaxCount});
  predicted.number("bubble", &plan.predicted_bubble, {0.0, 1.0});
  if (const YamlNode* ranks = predicted.list("ranks")) {
    for (size_t r = 0; r < ranks->items.size() && r < kMaxRanks; ++r) {
      plan.ranks.push_back(
          read_planned_rank(document, ranks->items[r], fmt::format("predicted.ranks[{}]", r)));
    }
    int used = 0;
    for (const PlanStage& stage : plan.stages) used = std::max(used, stage.rank + 1);
    if (!plan.stages.empty() && static_cast<int>(ranks->items.size()) != used) {
      document.error(ranks->mark,
                     fmt::format("predicted.ranks has {} entries, the stages use {} ranks; delete "
                                 "`predicted` after editing",
                                 ranks->items.size(), used));
    }
  }
  if (const YamlNode* one = predicted.map("one_device")) {
    plan.one_device = read_planned_rank(document, *one, "predicted.one_device");
  }
  if (const YamlNode* all = predicted.map("data_parallel")) {
    plan.data_parallel = read_planned_rank(document, *all, "predicted.data_parallel");
  }
  if (const YamlNode* map = predicted.map("more_micro_batches", kOptional)) {
    Fields more(document, *map, "predicted.more_micro_batches");
    more.integer("batch", &plan.more.batch, {1, 2 * kMaxSamples});
    more.integer("micro_batch", &plan.more.micro_batch, {1, kMaxSamples});
    more.number("bubble", &plan.more.bubble, {0.0, 1.0});
    more.finish();
  }
  read_front(document, predicted, plan);
  read_alternatives(document, predicted, plan);
  predicted.finish();
  if (hash.empty() || hash == plan_hash(of_file)) of_file = std::move(plan);
}

void read_messages(YamlDocument& document, Fields& fields, Plan& plan) {
  const YamlNode* list = fields.list("messages", kOptional);
  if (list == nullptr) return;
  const int last_stage = std::max(0, static_cast<int>(plan.stages.size()) - 1);
  for (size_t i = 0; i < list->items.size(); ++i) {
    Message message;
    std::string direction = "forward";
    message.src_stage = message.dst_stage = 0;
    std::vector<int64_t> values;
    Fields entry(document, list->items[i], fmt::format("messages[{}]", i));
    entry.string("direction", &direction, kRequired, {"forward", "backward"});
    entry.integer("from", &message.src_stage, {0, last_stage});
    entry.integer("to", &message.dst_stage, {0, last_stage});
    entry.integer("bytes", &message.bytes.count, {1, kMaxCount});
    entry.integers("values", &values, {0, 1 << 20});
    entry.finish();
    message.direction = direction == "forward" ? Direction::kForward : Direction::kBackward;
    if (!plan.stages.empty()) {
      message.src_rank = plan.stages[static_cast<size_t>(message.src_stage)].rank;
      message.dst_rank = plan.stages[static_cast<size_t>(message.dst_stage)].rank;
    }
    for (const int64_t value : values) message.items.push_back({static_cast<int>(value)});
    plan.messages.push_back(std::move(message));
  }
}

}  // namespace

Plan read_plan(const std::string& path) {
  YamlDocument document = YamlDocument::read(path);
  Plan plan;
  Fields fields(document, document.root());
  read_version(document, fields, plan);
  if (const YamlNode* node = fields.map("train")) {
    Fields train(document, *node, "train");
    read_planned_fields(document, train, path, plan.train);
    train.finish();
  }
  read_graph_hash(document, fields, plan);
  fields.string("cluster", &plan.cluster);
  // One replica until the executor sums over several.
  fields.integer("replicas", &plan.replicas, {1, 1}, kOptional);
  std::vector<std::string> schedules = generator_names();
  schedules.emplace_back("explicit");
  fields.string("schedule", &plan.schedule, kRequired, schedules);
  plan.relays = read_transfers(fields);
  read_order(document, fields, plan);
  read_stages(document, fields, plan);
  fields.strings("replicated", &plan.replicated, kOptional);
  fields.strings("recompute", &plan.recompute, kOptional);
  read_predicted(document, fields, plan);
  read_messages(document, fields, plan);
  fields.finish();
  document.throw_if_errors();
  return plan;
}

}  // namespace stagecraft
