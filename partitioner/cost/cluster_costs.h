// What every block costs on each rank of a cluster: one cost table for each kind of device.
//
// Immutable; copies share the tables, so that they are cheap. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "partitioner/cost/cost_table.h"

namespace stagecraft {

class ClusterCosts {
 public:
  // The same table for every rank, however many there are.
  explicit ClusterCosts(const CostTable& table);
  // `kind_of_rank[r]` is the table of rank r. Throws ConfigError (exit 4) when the tables were made
  // for different graphs, precisions, resolutions or micro-batches, naming both.
  ClusterCosts(std::vector<CostTable> tables, std::vector<int> kind_of_rank);

  // Tables live as long as any copy of this object.
  const CostTable& of_rank(int rank) const { return of_kind(kind_of_rank(rank)); }
  const CostTable& of_kind(int kind) const;
  int kind_of_rank(int rank) const;  // 0 for every rank when one table serves all
  int kinds() const { return static_cast<int>(tables_->size()); }
  int64_t micro_batch() const { return tables_->front().micro_batch; }
  const std::string& precision() const { return tables_->front().precision; }

  // The costs when rank i of the result is rank `ranks[i]` of this.
  ClusterCosts select(const std::vector<int>& ranks) const;

 private:
  using Tables = std::shared_ptr<const std::vector<CostTable>>;
  ClusterCosts(Tables tables, std::vector<int> kind_of_rank);

  Tables tables_;
  std::vector<int> kind_of_rank_;  // empty: one table for all
};

}  // namespace stagecraft
