// What every block costs on one device, at one precision, resolution and micro-batch.
//
// Two makers of the same table: *measured* (pipeline/profile runs the blocks) and *analytic*
// (cost/analytic.h counts operations). Plain values with a canonical text form; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "partitioner/base/units.h"
#include "partitioner/graph/graph.h"

namespace stagecraft {

struct Timing {
  Nanos median;
  Nanos spread;  // half the distance between the quartiles; 0 for analytic
  bool operator==(const Timing&) const = default;
};

struct BlockCost {
  Timing forward, backward_input,
      backward_weight;  // of one micro-batch; 0 where the state does not need it
  // Kept from forward to backward, besides inputs of the block that are counted by their value (two
  // blocks may keep the same).
  Bytes saved_internal;
  std::vector<bool>
      keeps_input;  // by argument position: the input value stays alive until the backward pass
  bool keeps_output = false;                    // the block's own output is among what it saved
  Bytes workspace_forward, workspace_backward;  // peak above what was there before and what stays
  Bytes output,
      parameters;  // parameters: at the table's precision when frozen, fp32 when trainable
  bool operator==(const BlockCost&) const = default;
};

struct CostTable {
  std::string made_by;    // "measured" or "analytic"
  std::string machine;    // where, on what, with how many threads, versions
  std::string device;     // name from the device description
  std::string precision;  // "fp32", "fp16", "bf16"
  int64_t width = 0, height = 0, micro_batch = 0;
  std::string graph_hash;
  std::map<std::string, BlockCost> blocks;  // by block name
  bool operator==(const CostTable&) const = default;
};

// JSON, keys sorted, one block a line. `read_cost_table` throws InputError (kIo, or kDataInvalid
// naming file and key).
std::string to_json(const CostTable& table);
void write_cost_table(const CostTable& table, const std::string& path);
CostTable read_cost_table(const std::string& path);

// What costs are wanted for.
struct CostUse {
  std::string device, precision;
  int64_t micro_batch = 1;
};
// Throws ConfigError (exit 4) when the table was made for another graph, device, precision,
// resolution or micro-batch, naming both.
void check_cost_table(const CostTable& table, const BlockGraph& graph, const CostUse& use);

}  // namespace stagecraft
