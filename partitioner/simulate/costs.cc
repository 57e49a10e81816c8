#include "partitioner/simulate/costs.h"

#include <fmt/core.h>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

BlockCosts costs_by_block(const BlockGraph& graph, const CostTable& table) {
  BlockCosts costs;
  for (const Block& block : graph.blocks) {
    const auto found = table.blocks.find(block.name);
    const bool is_known = found != table.blocks.end();
    if (!is_known && block.reaches_loss) {
      throw ConfigError(
          fmt::format("the cost table made on \"{}\" has no block {}; make it again for this model",
                      table.machine, block.name),
          ExitCode::kPlanMismatch);
    }
    costs.push_back(is_known ? &found->second : nullptr);
  }
  return costs;
}

}  // namespace

std::vector<BlockCosts> block_costs_by_kind(const BlockGraph& graph, const ClusterCosts& costs) {
  std::vector<BlockCosts> by_kind;
  for (int k = 0; k < costs.kinds(); ++k) {
    by_kind.push_back(costs_by_block(graph, costs.of_kind(k)));
  }
  return by_kind;
}

int64_t scale_to(int64_t count, int64_t samples, int64_t micro_batch) {
  check(micro_batch > 0, "a cost table is for at least one sample");
  return (count * samples + micro_batch - 1) / micro_batch;
}

}  // namespace stagecraft
