#include "partitioner/solver/infeasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "partitioner/base/error.h"
#include "partitioner/solver/leanest.h"
#include "partitioner/solver/step_search.h"

namespace stagecraft {
namespace {

constexpr int kMoreStages = 4;
constexpr int64_t kNodesPerTry = 200'000;
constexpr double kBytesPerMiB = 1024.0 * 1024.0;

double mib_up(int64_t bytes) { return std::ceil(static_cast<double>(bytes) / kBytesPerMiB); }

// The same problem with other costs.
struct Variant {
  BlockGraph graph;
  std::vector<CostTable> tables;  // by kind
};

Bytes scaled(Bytes bytes, int64_t numerator, int64_t denominator) {
  return Bytes{bytes.count * numerator / denominator};
}
Timing scaled(Timing timing, int64_t numerator, int64_t denominator) {
  return {.median = Nanos{timing.median.count * numerator / denominator}, .spread = Nanos{0}};
}

// Every cost in proportion; parameters stay. Scratch that depends on weights is scaled too, hence
// an estimate.
void scale_costs(CostTable& costs, int64_t numerator, int64_t denominator) {
  for (auto& [name, cost] : costs.blocks) {
    for (Timing* t : {&cost.forward, &cost.backward_input, &cost.backward_weight})
      *t = scaled(*t, numerator, denominator);
    for (Bytes* b :
         {&cost.saved_internal, &cost.workspace_forward, &cost.workspace_backward, &cost.output})
      *b = scaled(*b, numerator, denominator);
  }
}

Variant variant_of(const StageTable& table) {
  Variant variant{.graph = table.graph(), .tables = {}};
  for (int kind = 0; kind < table.costs().kinds(); ++kind)
    variant.tables.push_back(table.costs().of_kind(kind));
  return variant;
}

Variant smaller_micro_batch(const StageTable& table, int64_t micro_batch) {
  Variant variant = variant_of(table);
  for (CostTable& costs : variant.tables) {
    scale_costs(costs, micro_batch, costs.micro_batch);
    costs.micro_batch = micro_batch;
  }
  return variant;
}

Variant half_precision(const StageTable& table) {
  Variant variant = variant_of(table);
  for (Value& value : variant.graph.values)
    if (value.dtype == DType::kF32) value.dtype = DType::kF16;
  for (Block& block : variant.graph.blocks)
    for (LocalTensor& tensor : block.tensors)
      if (tensor.dtype == DType::kF32) tensor.dtype = DType::kF16;
  for (CostTable& costs : variant.tables) {
    for (const Block& block : variant.graph.blocks) {
      Bytes& parameters = costs.blocks.at(block.name).parameters;
      if (!block.trainable) parameters = scaled(parameters, 1, 2);
    }
    scale_costs(costs, 1, 2);
    costs.precision = "fp16";
  }
  return variant;
}

std::string names_of_stage(const BlockGraph& graph, const Placement& placement, int stage) {
  std::string first, last;
  int count = 0;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    if (placement.stage_of_block[b] != stage) continue;
    if (first.empty()) first = graph.blocks[b].name;
    last = graph.blocks[b].name;
    ++count;
  }
  return count == 1 ? first : fmt::format("{} blocks, {} to {}", count, first, last);
}

std::string caps_text(const SplitTarget& target) {
  const std::vector<Device>& devices = target.cluster.devices;
  std::string text;
  for (size_t r = 0; r < devices.size();) {
    size_t next = r;
    while (next < devices.size() && devices[next].memory == devices[r].memory) ++next;
    text += fmt::format("{}{} x {:.0f} MiB", text.empty() ? "" : " + ", next - r,
                        devices[r].memory.mib());
    r = next;
  }
  return text;
}

class Explanation {
 public:
  Explanation(const StageTable& table, const SplitTarget& target, const SolverOptions& options)
      : table_(table), target_(target), options_(options) {}

  std::string line() const {
    if (!target_.fixed.empty() && !keeps_fixed()) return fixed_text();
    const Leanest leanest = leanest_split(table_, target_);
    const Split& split = leanest.split;
    int rank = 0;
    for (int r = 0; r < target_.stages(); ++r)
      if (over(split, r) > over(split, rank)) rank = r;
    const int64_t missing = over(split, rank);
    if (missing <= 0)
      return fmt::format(
          "no split in {} stages that fits {} was found in the time given{}, though there may be "
          "one; give more time, or {}",
          target_.stages(), caps_text(target_),
          target_.fixed.empty() ? "" : " with the blocks fixed as they are",
          target_.fixed.empty() ? "larger caps" : "fewer fixed blocks");
    const auto stage =
        static_cast<int>(std::ranges::find(split.chain.ranks, rank) - split.chain.ranks.begin());
    const StageCosts& costs = table_.stage_costs(table_.costs().kind_of_rank(rank));
    const int largest = largest_block(costs, split.placement, stage);
    std::string text = fmt::format(
        "no split in {} stages {} {}: the {} needs {:.0f} MiB on rank {} (stage {}: {}), {:.0f} "
        "MiB over; its largest block is {} with {:.0f} MiB",
        target_.stages(), leanest.is_proven ? "fits" : "was found that fits", caps_text(target_),
        leanest.is_proven ? "leanest" : "leanest found", mib_up(split.memory[rank].total().count),
        rank, stage, names_of_stage(table_.graph(), split.placement, stage), mib_up(missing),
        table_.graph().blocks[largest].name, mib_up(costs.footprint(largest)));
    text += fmt::format("; tried: it fits devices with {:.0f} MiB more each", mib_up(missing));
    return text + recompute() + more_stages() + smaller_micro_batches() + half();
  }

 private:
  int64_t over(const Split& split, int rank) const {
    return split.memory[rank].total().count - target_.cluster.devices[rank].memory.count;
  }

  int largest_block(const StageCosts& costs, const Placement& placement, int stage) const {
    int largest = -1;
    for (int b : placement.blocks_owned_by(table_.graph(), stage))
      if (largest < 0 || costs.footprint(b) > costs.footprint(largest)) largest = b;
    return largest;
  }

  // Some split has the fixed blocks where they must run, whatever it needs.
  bool keeps_fixed() const {
    SplitTarget roomy = target_;
    for (Device& device : roomy.cluster.devices) device.memory = Bytes{int64_t{1} << 60};
    return fits(table_, roomy);
  }
  std::string fixed_text() const {
    std::string blocks;
    constexpr size_t kMostNamed = 4;
    for (size_t i = 0; i < target_.fixed.size() && i < kMostNamed; ++i)
      blocks +=
          fmt::format("{}{} on rank {}", blocks.empty() ? "" : ", ",
                      table_.graph().blocks[target_.fixed[i].first].name, target_.fixed[i].second);
    if (target_.fixed.size() > kMostNamed)
      blocks += fmt::format(" and {} more", target_.fixed.size() - kMostNamed);
    return fmt::format(
        "no split in {} stages has {}: stage s runs on rank s, no stage is empty, and a block runs "
        "no earlier than what it reads; fix fewer blocks, or give other --stages",
        target_.stages(), blocks);
  }

  bool fits(const StageTable& table, const SplitTarget& target) const {
    return std::ranges::any_of(both_transfers(target), [&](const SplitTarget& way) {
      return search_step(table, way, options_.limits.part(kNodesPerTry)).best.has_value();
    });
  }

  std::string recompute() const {
    if (target_.may_recompute) return "";
    SplitTarget target = target_;
    target.may_recompute = true;
    return fits(table_, target) ? "; with blocks running again in the backward pass it fits" : "";
  }

  std::string more_stages() const {
    if (table_.costs().kinds() > 1) return "";  // of which kind, it cannot say
    const ClusterCosts same(table_.costs().of_kind(0));
    const StageTable table(table_.graph(), same);
    for (int more = 1; more <= kMoreStages; ++more) {
      SplitTarget wider = target_;
      if (wider.stages() + more > table_.units()) break;
      for (int i = 0; i < more; ++i)
        wider.cluster.devices.push_back(target_.cluster.devices.back());
      wider.cluster.host_of_rank.clear();
      if (fits(table, wider))
        return fmt::format("; {0} stages on {0} such devices would fit", wider.stages());
      if (more == kMoreStages) return fmt::format("; none found in {} stages", wider.stages());
    }
    return "";
  }

  bool variant_fits(const Variant& variant, int64_t micro_batch) const {
    SplitTarget target = target_;
    target.micro_batch_sizes = micro_batch_sizes(options_.batch, micro_batch);
    std::vector<int> kinds;
    for (int r = 0; r < target.stages(); ++r) kinds.push_back(table_.costs().kind_of_rank(r));
    return fits(StageTable(variant.graph, ClusterCosts(variant.tables, kinds)), target);
  }

  std::string smaller_micro_batches() const {
    if (options_.micro_batch == 1) return "";
    for (int64_t smaller = options_.micro_batch / 2; smaller >= 1; smaller /= 2)
      if (variant_fits(smaller_micro_batch(table_, smaller), smaller))
        return fmt::format("; micro-batch {} fits (estimated)", smaller);
    return "; micro-batch 1 does not (estimated)";
  }

  std::string half() const {
    if (table_.costs().precision() != "fp32") return "";
    return fmt::format(
        "; precision fp16 {} (estimated)",
        variant_fits(half_precision(table_), options_.micro_batch) ? "fits" : "does not");
  }

  const StageTable& table_;
  const SplitTarget& target_;
  const SolverOptions& options_;
};

}  // namespace

std::string explain_infeasible(const StageTable& table, const SplitTarget& target,
                               const SolverOptions& options) {
  return Explanation(table, target, options).line();
}

}  // namespace stagecraft
