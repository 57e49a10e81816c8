// The plan as YAML: exact numbers for machines, comments for people.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/format.h"
#include "partitioner/base/strict_yaml.h"
#include "partitioner/plan/plan.h"

namespace stagecraft {
namespace {

constexpr const char* kHeader =
    R"(# Stagecraft plan: how a model is split into stages. Every key: docs/plan-file.md.
#
# Made to be edited by hand: move a block by moving its line to another stage. A block may only
# read blocks of its own or an earlier stage. Then delete `messages` and `predicted`, and check the
# file; every fault is named with line and column:
#
#     partition verify plan.yaml
)";

void write_train(std::string& out, const TrainConfig& train) {
  out += fmt::format(
      "train:\n  model: {}\n  width: {}\n  height: {}\n  precision: {}\n  batch: {}\n  "
      "micro_batch: {}\n"
      "  trainable: {{what: {}, sd_locked: {}, only_mid_control: {}}}\n",
      yaml_quote(train.model), train.width, train.height, train.precision, train.batch,
      train.micro_batch, train.trainable.what, train.trainable.sd_locked,
      train.trainable.only_mid_control);
}

std::string stage_comment(const Plan& plan, const PlanStage& stage, const BlockGraph& graph) {
  int64_t parameters = 0, trainable = 0;
  for (const std::string& name : stage.blocks) {
    const int block = graph.find_block(name);
    if (block < 0) continue;
    const int64_t count = graph.blocks[static_cast<size_t>(block)].parameters();
    parameters += count;
    if (graph.blocks[static_cast<size_t>(block)].trainable) trainable += count;
  }
  std::string text = fmt::format("{} blocks, {} parameters, {} trainable", stage.blocks.size(),
                                 grouped(parameters), grouped(trainable));
  const size_t rank = static_cast<size_t>(stage.rank);
  if (rank < plan.ranks.size()) {
    text += fmt::format("; rank busy {}, {} of {}", millis_text(plan.ranks[rank].busy),
                        mib_text(plan.ranks[rank].memory.total()),
                        mib_text(plan.ranks[rank].device_memory));
  }
  return text;
}

void write_names(std::string& out, const char* key, const std::vector<std::string>& names) {
  if (names.empty()) {
    out += fmt::format("{}: []\n", key);
    return;
  }
  out += fmt::format("{}:\n", key);
  for (const std::string& name : names) out += fmt::format("  - {}\n", yaml_quote(name));
}

void write_order(std::string& out, const Plan& plan) {
  if (plan.order.empty()) return;
  out += "order:  # per rank\n";
  for (const auto& rank : plan.order)
    out += fmt::format("  - {}\n", yaml_quote(fmt::format("{}", fmt::join(rank, " "))));
}

void write_rank(std::string& out, const PlannedRank& rank, const std::string& indent) {
  out += fmt::format(
      "device: {}\n{}device_memory: {}  # {}\n{}busy_ns: {}  # {}\n{}memory:  # {}\n",
      yaml_quote(rank.device), indent, rank.device_memory.count, mib_text(rank.device_memory),
      indent, rank.busy.count, millis_text(rank.busy), indent, mib_text(rank.memory.total()));
  for (int line = 0; line < kMemoryLines; ++line) {
    const auto id = static_cast<MemoryLine>(line);
    out += fmt::format("{}  {}: {}  # {}\n", indent, key_of(id), rank.memory[id].count,
                       mib_text(rank.memory[id]));
  }
}

void write_study(std::string& out, const Plan& plan) {
  if (plan.more.batch > 0) {
    out += fmt::format(
        "  # The bubble with twice as many micro-batches.\n  more_micro_batches: {{batch: {}, "
        "micro_batch: {}, bubble: {}}}\n",
        plan.more.batch, plan.more.micro_batch, plan.more.bubble);
  }
  if (!plan.front.empty()) {
    out += "  # Plans that no other found one beats in both step and memory.\n  front:\n";
  }
  for (const FrontPoint& point : plan.front) {
    out += fmt::format(
        "    - {{step_ns: {}, peak: {}, replicas: {}, stages: {}, micro_batch: {}, schedule: {}, "
        "recomputed: {}, {}is_chosen: {}}}  # {}, {}\n",
        point.step.count, point.peak.count, point.replicas, point.stages, point.micro_batch,
        yaml_quote(point.schedule), point.recomputed, point.relays ? "transfers: relayed, " : "",
        point.is_chosen, millis_text(point.step), mib_text(point.peak));
  }
  if (!plan.alternatives.empty()) {
    out += "  # Other ways to train the same on these devices.\n  alternatives:\n";
  }
  for (const Alternative& other : plan.alternatives) {
    out += fmt::format(
        "    - name: {}\n      how: {}\n      memory: {}  # {}\n      device_memory: {}\n"
        "      step_ns: {}  # {}\n      exposed_ns: {}\n",
        yaml_quote(other.name), yaml_quote(other.how), other.memory.count, mib_text(other.memory),
        other.device_memory.count, other.step.count, millis_text(other.step), other.exposed.count);
    if (!other.trains_the_same()) out += fmt::format("      other_batch: {}\n", other.other_batch);
  }
}

void write_predicted(std::string& out, const Plan& plan) {
  if (plan.ranks.empty()) return;
  out += fmt::format(
      "\npredicted:\n  plan_hash: {}\n  cost_table: {}\n  step_ns: {}  # {}\n  bubble: {}\n  "
      "ranks:\n",
      plan_hash(plan), yaml_quote(plan.cost_table), plan.predicted_step.count,
      millis_text(plan.predicted_step), plan.predicted_bubble);
  for (size_t r = 0; r < plan.ranks.size(); ++r) {
    out += fmt::format("    # rank {}\n    - ", r);
    write_rank(out, plan.ranks[r], "      ");
  }
  out +=
      "  # The same training on one device alone, and under data parallel on all of them.\n  "
      "one_device:\n    ";
  write_rank(out, plan.one_device, "    ");
  out += "  data_parallel:\n    ";
  write_rank(out, plan.data_parallel, "    ");
  write_study(out, plan);
}

std::string item_comment(const Message& message, const BlockGraph& graph) {
  constexpr size_t kShown = 3;
  std::string text = mib_text(message.bytes) + ":";
  for (size_t i = 0; i < message.items.size() && i < kShown; ++i) {
    const auto value = static_cast<size_t>(message.items[i].value);
    if (value < graph.values.size()) text += " " + graph.values[value].name;
  }
  if (message.items.size() > kShown) {
    text += fmt::format(" and {} more", message.items.size() - kShown);
  }
  return text;
}

void write_messages(std::string& out, const Plan& plan, const BlockGraph& graph) {
  if (plan.messages.empty()) return;
  out += fmt::format(
      "\n# What travels for one micro-batch; the comments name the values. In an explicit order\n"
      "# message n of micro-batch j, counted from 0, is S and R number j x {} + n.\nmessages:\n",
      plan.messages.size());
  for (const Message& message : plan.messages) {
    std::string values;
    for (const MessageItem& item : message.items) {
      values += fmt::format("{}{}", values.empty() ? "" : ", ", item.value);
    }
    out += fmt::format("  - {{direction: {}, from: {}, to: {}, bytes: {}, values: [{}]}}  # {}\n",
                       message.direction == Direction::kForward ? "forward" : "backward",
                       message.src_stage, message.dst_stage, message.bytes.count, values,
                       item_comment(message, graph));
  }
}

// How the plan at `path` names the model: relative when both lie under one folder, so that the two
// can move together.
std::string model_beside(const std::string& model, const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path file = fs::absolute(model).lexically_normal();
  const fs::path folder = fs::absolute(path).lexically_normal().parent_path();
  const auto top = [](const fs::path& p) {
    return std::next(p.begin()) == p.end() ? fs::path() : *std::next(p.begin());
  };
  if (top(file) != top(folder)) return file.string();
  return file.lexically_relative(folder).string();
}

}  // namespace

std::string batch_text(const Plan& plan) {
  const int64_t batch = plan.train.batch, micro_batch = plan.train.micro_batch;
  std::string text = fmt::format("batch {} as micro-batches of {}", batch, micro_batch);
  if (batch % micro_batch != 0) text += fmt::format(", the last of {}", batch % micro_batch);
  return text;
}

std::string schedule_text(const Plan& plan) {
  return plan.relays ? plan.schedule + " with relayed transfers" : plan.schedule;
}

std::string to_yaml(const Plan& plan, const BlockGraph& graph) {
  std::string out = kHeader;
  out += fmt::format("\nversion: {}\n", plan.version);
  write_train(out, plan.train);
  out += fmt::format("graph_hash: {}\ncluster: {}\nreplicas: {}\nschedule: {}\n", plan.graph_hash,
                     yaml_quote(plan.cluster), plan.replicas, yaml_quote(plan.schedule));
  if (plan.relays) {
    out += "# What a further stage needs goes from stage to stage; direct: straight to it.\n";
    out += "transfers: relayed\n";
  }
  write_order(out, plan);
  out += "\nstages:\n";
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    const PlanStage& stage = plan.stages[s];
    out += fmt::format("  # stage {}: {}\n  - rank: {}\n", s, stage_comment(plan, stage, graph),
                       stage.rank);
    if (stage.blocks.empty()) {
      out += "    blocks: []\n";
      continue;
    }
    out += "    blocks:\n";
    for (const std::string& name : stage.blocks) {
      out += fmt::format("      - {}\n", yaml_quote(name));
    }
  }
  out += "\n# Frozen blocks that run on every rank that needs their output.\n";
  write_names(out, "replicated", plan.replicated);
  out +=
      "# Blocks whose forward runs again in the backward pass instead of keeping its "
      "activations.\n";
  write_names(out, "recompute", plan.recompute);
  write_predicted(out, plan);
  write_messages(out, plan, graph);
  return out;
}

void write_plan(const Plan& plan, const BlockGraph& graph, const std::string& path) {
  Plan beside = plan;
  beside.train.model = model_beside(plan.train.model, path);
  write_file_atomically(path, to_yaml(beside, graph));
}

}  // namespace stagecraft
