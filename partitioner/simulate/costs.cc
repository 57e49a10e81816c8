#include "partitioner/simulate/costs.h"

#include <fmt/core.h>

#include "partitioner/base/error.h"

namespace stagecraft {

std::vector<const BlockCost*> costs_by_block(const BlockGraph& graph, const CostTable& table) {
  std::vector<const BlockCost*> costs;
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

int64_t scale_to(int64_t count, int64_t samples, const CostTable& table) {
  check(table.micro_batch > 0, "a cost table is for at least one sample");
  return (count * samples + table.micro_batch - 1) / table.micro_batch;
}

}  // namespace stagecraft
