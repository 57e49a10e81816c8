#include "partitioner/cost/cluster_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

void check_agreement(const CostTable& first, const CostTable& other) {
  const auto require_equal = [&](const char* what, const std::string& a, const std::string& b) {
    if (a == b) return;
    throw ConfigError(
        fmt::format("the cost tables of one cluster differ in {}: {} has {}, {} has {}; make both "
                    "for the same job",
                    what, first.device, a, other.device, b),
        ExitCode::kPlanMismatch);
  };
  const auto pixels = [](const CostTable& table) {
    return fmt::format("{}x{}", table.width, table.height);
  };
  require_equal("graph", first.graph_hash.substr(0, 12), other.graph_hash.substr(0, 12));
  require_equal("precision", first.precision, other.precision);
  require_equal("pixels", pixels(first), pixels(other));
  require_equal("micro-batch", std::to_string(first.micro_batch),
                std::to_string(other.micro_batch));
}

}  // namespace

ClusterCosts::ClusterCosts(const CostTable& table)
    : tables_(std::make_shared<const std::vector<CostTable>>(1, table)) {}

ClusterCosts::ClusterCosts(std::vector<CostTable> tables, std::vector<int> kind_of_rank)
    : ClusterCosts(std::make_shared<const std::vector<CostTable>>(std::move(tables)),
                   std::move(kind_of_rank)) {
  check(!tables_->empty() && !kind_of_rank_.empty(), "costs of a cluster need a table and a rank");
  for (const CostTable& table : *tables_) check_agreement(tables_->front(), table);
  for (const int kind : kind_of_rank_) {
    check(kind >= 0 && kind < kinds(), "a rank's kind of device has no cost table");
  }
}

ClusterCosts::ClusterCosts(Tables tables, std::vector<int> kind_of_rank)
    : tables_(std::move(tables)), kind_of_rank_(std::move(kind_of_rank)) {}

const CostTable& ClusterCosts::of_kind(int kind) const {
  check(kind >= 0 && kind < kinds(), "a kind of device has no cost table");
  return (*tables_)[static_cast<size_t>(kind)];
}

int ClusterCosts::kind_of_rank(int rank) const {
  if (kind_of_rank_.empty()) return 0;
  check(rank >= 0 && static_cast<size_t>(rank) < kind_of_rank_.size(),
        "a rank has no kind of device in the costs of its cluster");
  return kind_of_rank_[static_cast<size_t>(rank)];
}

ClusterCosts ClusterCosts::select(const std::vector<int>& ranks) const {
  std::vector<int> kinds;
  for (const int rank : ranks) kinds.push_back(kind_of_rank(rank));
  return ClusterCosts(tables_, std::move(kinds));
}

}  // namespace stagecraft
