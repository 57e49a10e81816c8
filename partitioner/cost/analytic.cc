#include "partitioner/cost/analytic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "partitioner/base/error.h"
#include "partitioner/cost/block_replay.h"
#include "partitioner/cost/op_work.h"

namespace stagecraft {
namespace {

constexpr int64_t kTrainableParameterSize = 4;  // the table counts trainable parameters in fp32

int64_t compute_size(const std::string& precision) {
  if (precision == "fp32") return 4;
  if (precision == "fp16" || precision == "bf16") return 2;
  throw ConfigError(fmt::format("precision \"{}\" is unknown: use fp32, fp16 or bf16", precision));
}

class Roofline {
 public:
  Roofline(const Device& device, const std::string& precision)
      : device_(device),
        peak_(compute_size(precision) == 4 ? device.flops_fp32 : device.flops_fp16) {
    if (peak_ <= 0 || device.flops_fp32 <= 0 || device.bandwidth <= 0)
      throw ConfigError(fmt::format("device \"{}\" gives no {} for {}: add it to its file",
                                    device.name,
                                    device.bandwidth <= 0                          ? "bandwidth"
                                    : (peak_ <= 0 && compute_size(precision) == 2) ? "flops_fp16"
                                                                                   : "flops_fp32",
                                    precision));
  }

  double nanoseconds(const OpWork& work) const {
    const double compute = work.flops / rate(work.kind);
    const double memory = work.bytes / (device_.bandwidth * device_.efficiency_bandwidth);
    return std::max(compute, memory) * 1e9 +
           static_cast<double>(work.launches * device_.op_latency.count);
  }

 private:
  double rate(WorkKind kind) const {
    switch (kind) {
      case WorkKind::kMatmul:
        return peak_ * device_.efficiency_matmul;
      case WorkKind::kConv:
        return peak_ * device_.efficiency_conv;
      case WorkKind::kAttention:
        return peak_ * device_.efficiency_attention;
      case WorkKind::kFp32Matmul:
        return device_.flops_fp32 * device_.efficiency_matmul;
      case WorkKind::kElementwise:
        break;
    }
    return device_.flops_fp32;  // not matrix work: plain units, fp32 inside
  }

  const Device& device_;
  double peak_;
};

// Which local tensors carry a gradient: those below a carrying input or a trained parameter.
std::vector<bool> carrying_tensors(const Block& block,
                                   const std::vector<bool>& input_carries_grad) {
  std::vector<bool> needs(block.tensors.size(), false);
  if (!block.reaches_loss || block.state == BlockState::kF) return needs;
  for (size_t i = 0; i < input_carries_grad.size(); ++i) needs[i] = input_carries_grad[i];
  for (const Op& op : block.ops) {
    bool carries = block.trainable && !op.params.empty();
    for (int input : op.inputs) carries = carries || needs[input];
    needs[op.output] = carries;
  }
  return needs;
}

// Sums of contributions where several operations read one tensor: both read, one written.
OpWork accumulation_work(const WorkContext& context, const std::vector<bool>& needs) {
  std::vector<int> readers(context.block.tensors.size(), 0);
  for (const Op& op : context.block.ops)
    if (needs[op.output])
      for (int input : op.inputs) ++readers[input];
  OpWork work;
  for (size_t t = 0; t < readers.size(); ++t) {
    if (!needs[t] || readers[t] < 2) continue;
    work.bytes +=
        3.0 * (readers[t] - 1) *
        static_cast<double>(tensor_bytes(context.block, static_cast<int>(t), context.batch));
    work.launches += readers[t] - 1;
  }
  return work;
}

Timing exact(double nanoseconds) {
  return {.median = Nanos{std::llround(nanoseconds)}, .spread = Nanos{0}};
}

void fill_times(BlockCost& cost, const WorkContext& context, const std::vector<bool>& needs,
                const Roofline& roofline) {
  const Block& block = context.block;
  double forward = 0, inputs = 0, weights = 0;
  for (const Op& op : block.ops) {
    forward += roofline.nanoseconds(forward_work(context, op));
    if (!needs[op.output]) continue;
    inputs += roofline.nanoseconds(input_gradient_work(context, op, needs));
    if (block.trainable) weights += roofline.nanoseconds(weight_gradient_work(context, op));
  }
  inputs += roofline.nanoseconds(accumulation_work(context, needs));
  const bool has_input_part = block.state == BlockState::kFI || block.state == BlockState::kFIW;
  cost.forward = exact(forward);
  cost.backward_input = exact(has_input_part ? inputs : 0);
  cost.backward_weight = exact(has_input_part ? weights : inputs + weights);
}

void fill_saved(BlockCost& cost, const Block& block, const std::vector<bool>& input_carries_grad,
                const std::vector<bool>& needs, const ReplayOptions& options) {
  SavedTensors kept;
  if (block.state != BlockState::kF)
    kept = saved_for_backward(block, input_carries_grad, options.attention);
  std::vector<bool> saved(block.tensors.size(), false);
  int64_t internal = kept.extra_bytes * options.batch;
  for (int t : kept.tensors) {
    saved[t] = true;
    if (t < static_cast<int>(block.inputs.size())) {
      cost.keeps_input[t] = true;
    } else if (t == block.ops.back().output) {
      cost.keeps_output = true;
    } else {
      internal += tensor_bytes(block, t, options.batch);
    }
  }
  cost.saved_internal = Bytes{internal};
  const BlockWorkspace workspace = replay_block(block, needs, saved, options);
  cost.workspace_forward = Bytes{workspace.forward};
  cost.workspace_backward = Bytes{workspace.backward};
}

}  // namespace

CostTable analytic_cost_table(const BlockGraph& graph, const Device& device,
                              const std::string& precision, int64_t micro_batch) {
  if (micro_batch < 1)
    throw ConfigError(fmt::format("micro-batch {} is too small: use 1 or more", micro_batch));
  const Roofline roofline(device, precision);
  const int64_t element = compute_size(precision);
  CostTable table{.made_by = "analytic",
                  .machine = fmt::format("operations counted, roofline of device {}", device.name),
                  .device = device.name,
                  .precision = precision,
                  .width = graph.width,
                  .height = graph.height,
                  .micro_batch = micro_batch,
                  .graph_hash = graph_hash(graph),
                  .blocks = {}};
  const ReplayOptions options{.batch = micro_batch,
                              .parameter_size = element,
                              .cuda = device.kind == "cuda",
                              .attention = device.attention};
  for (const Block& block : graph.blocks) {
    BlockCost cost;
    cost.keeps_input.assign(block.inputs.size(), false);
    cost.output = graph.values[block.output].bytes(micro_batch);
    cost.parameters =
        Bytes{block.parameters() * (block.trainable ? kTrainableParameterSize : element)};
    if (block.reaches_loss && !block.ops.empty()) {
      std::vector<bool> input_carries_grad;
      for (int value : block.inputs) input_carries_grad.push_back(graph.values[value].carries_grad);
      const std::vector<bool> needs = carrying_tensors(block, input_carries_grad);
      const WorkContext context{.block = block,
                                .batch = micro_batch,
                                .parameter_size = element,
                                .attention = device.attention};
      fill_times(cost, context, needs, roofline);
      fill_saved(cost, block, input_carries_grad, needs, options);
    }
    table.blocks.emplace(block.name, std::move(cost));
  }
  return table;
}

ClusterCosts analytic_cluster_costs(const BlockGraph& graph, const Cluster& cluster,
                                    const std::string& precision, int64_t micro_batch) {
  std::vector<int> kind_of_rank = cluster.kinds();
  std::vector<CostTable> tables;
  for (size_t r = 0; r < kind_of_rank.size(); ++r) {
    if (kind_of_rank[r] < static_cast<int>(tables.size())) continue;
    tables.push_back(analytic_cost_table(graph, cluster.devices[r], precision, micro_batch));
  }
  return ClusterCosts(std::move(tables), std::move(kind_of_rank));
}

}  // namespace stagecraft
