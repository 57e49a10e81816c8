#include "partitioner/solver/infeasible.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

constexpr int kMoreStages = 4;
constexpr double kBytesPerMiB = 1024.0 * 1024.0;

double mib_up(int64_t bytes) { return std::ceil(static_cast<double>(bytes) / kBytesPerMiB); }

struct Variant {
  BlockGraph graph;
  CostTable costs;
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

Variant smaller_micro_batch(const BlockGraph& graph, const CostTable& costs, int64_t micro_batch) {
  Variant variant{.graph = graph, .costs = costs};
  scale_costs(variant.costs, micro_batch, costs.micro_batch);
  variant.costs.micro_batch = micro_batch;
  return variant;
}

Variant half_precision(const BlockGraph& graph, const CostTable& costs) {
  Variant variant{.graph = graph, .costs = costs};
  for (Value& value : variant.graph.values)
    if (value.dtype == DType::kF32) value.dtype = DType::kF16;
  for (Block& block : variant.graph.blocks) {
    for (LocalTensor& tensor : block.tensors)
      if (tensor.dtype == DType::kF32) tensor.dtype = DType::kF16;
    Bytes& parameters = variant.costs.blocks.at(block.name).parameters;
    if (!block.trainable) parameters = scaled(parameters, 1, 2);
  }
  scale_costs(variant.costs, 1, 2);
  variant.costs.precision = "fp16";
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
  std::string text;
  for (size_t r = 0; r < target.devices.size();) {
    size_t next = r;
    while (next < target.devices.size() && target.devices[next].memory == target.devices[r].memory)
      ++next;
    text += fmt::format("{}{} x {:.0f} MiB", text.empty() ? "" : " + ", next - r,
                        target.devices[r].memory.mib());
    r = next;
  }
  return text;
}

class Explanation {
 public:
  Explanation(const BlockGraph& graph, const CostTable& costs, const SplitProblem& problem,
              const SplitTarget& target, const SolverOptions& options)
      : graph_(graph), costs_(costs), problem_(problem), target_(target), options_(options) {}

  std::string line() {
    const SplitProblem::Leanest leanest = problem_.leanest(target_);
    const Split& split = leanest.split;
    size_t rank = 0;
    for (size_t r = 0; r < split.memory.size(); ++r)
      if (over(split, r) > over(split, rank)) rank = r;
    const int64_t missing = over(split, rank);
    const int stage = static_cast<int>(rank);
    std::string text = fmt::format(
        "no split in {} stages {} {}: the {} needs {:.0f} MiB on rank {} (stage {}: {}), {:.0f} "
        "MiB over; its "
        "largest block is {} with {:.0f} MiB",
        target_.stages(), leanest.proven ? "fits" : "was found that fits", caps_text(target_),
        leanest.proven ? "leanest" : "leanest found", mib_up(split.memory[rank].total().count),
        rank, stage, names_of_stage(graph_, split.placement, stage), mib_up(missing),
        graph_.blocks[largest_block(split.placement, stage)].name,
        mib_up(problem_.stage_costs().footprint(largest_block(split.placement, stage))));
    text += "; tried: ";
    text += fmt::format("{:.0f} MiB more a device fits", mib_up(missing));
    text += more_stages() + smaller_micro_batches() + half();
    return text;
  }

 private:
  int64_t over(const Split& split, size_t rank) const {
    return split.memory[rank].total().count - target_.devices[rank].memory.count;
  }

  int largest_block(const Placement& placement, int stage) const {
    int largest = -1;
    for (int b : placement.blocks_owned_by(graph_, stage))
      if (largest < 0 ||
          problem_.stage_costs().footprint(b) > problem_.stage_costs().footprint(largest))
        largest = b;
    return largest;
  }

  std::string more_stages() const {
    for (int more = 1; more <= kMoreStages; ++more) {
      SplitTarget wider = target_;
      if (wider.stages() + more > problem_.searched_units()) break;
      for (int i = 0; i < more; ++i) wider.devices.push_back(target_.devices.back());
      if (problem_.fastest(wider))
        return fmt::format("; {} stages on as many devices fit", wider.stages());
      if (more == kMoreStages) return fmt::format("; none found in {} stages", wider.stages());
    }
    return "";
  }

  bool variant_fits(const Variant& variant, int64_t micro_batch) const {
    SplitTarget target = target_;
    target.micro_batch_sizes = micro_batch_sizes(options_.batch, micro_batch);
    return SplitProblem(variant.graph, ClusterCosts(variant.costs)).fastest(target).has_value();
  }

  std::string smaller_micro_batches() const {
    if (options_.micro_batch == 1) return "";
    for (int64_t smaller = options_.micro_batch / 2; smaller >= 1; smaller /= 2)
      if (variant_fits(smaller_micro_batch(graph_, costs_, smaller), smaller))
        return fmt::format("; micro-batch {} fits (estimated)", smaller);
    return "; micro-batch 1 does not (estimated)";
  }

  std::string half() const {
    if (costs_.precision != "fp32") return "";
    return fmt::format(
        "; precision fp16 {} (estimated)",
        variant_fits(half_precision(graph_, costs_), options_.micro_batch) ? "fits" : "does not");
  }

  const BlockGraph& graph_;
  const CostTable& costs_;
  const SplitProblem& problem_;
  const SplitTarget& target_;
  const SolverOptions& options_;
};

}  // namespace

std::string explain_infeasible(const BlockGraph& graph, const CostTable& costs,
                               const SplitProblem& problem, const SplitTarget& target,
                               const SolverOptions& options) {
  return Explanation(graph, costs, problem, target, options).line();
}

}  // namespace stagecraft
