// Hand-made block graphs without operations, for tests that state what must come out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "partitioner/graph/graph.h"
#include "partitioner/graph/placement.h"

namespace stagecraft::testing {

// Adds a block reading `inputs` (value indices) and returns its output value. Values are 100 bytes
// a sample, fp32.
inline int add_opaque_block(BlockGraph& graph, std::vector<int> inputs, bool trainable) {
  const int block = static_cast<int>(graph.blocks.size());
  Value value;
  value.name = "block" + std::to_string(block);
  value.producer = block;
  value.shape = {25};
  graph.values.push_back(value);
  Block added;
  added.name = value.name;
  added.part = "unet";
  added.section = "input";
  added.inputs = std::move(inputs);
  added.output = static_cast<int>(graph.values.size()) - 1;
  added.params = {{.name = value.name + ".weight", .shape = {10}}};
  added.trainable = trainable;
  graph.blocks.push_back(std::move(added));
  return graph.blocks.back().output;
}

inline BlockGraph empty_graph() {
  BlockGraph graph;
  graph.model = "hand-made";
  Value latents;
  latents.name = "input.noisy_latents";
  latents.shape = {25};
  graph.values.push_back(latents);
  return graph;
}

// value 0 (local input) -> block 0 -> value 1 -> block 1 -> value 2 ...; blocks before
// `first_trainable` are frozen.
inline BlockGraph chain_graph(int blocks, int first_trainable = 0) {
  BlockGraph graph = empty_graph();
  for (int b = 0; b < blocks; ++b) add_opaque_block(graph, {b}, b >= first_trainable);
  graph.output = blocks;
  derive_states(graph);
  return graph;
}

// Block b on stage b on rank b.
inline Placement chain_placement(int blocks) {
  Placement placement;
  for (int b = 0; b < blocks; ++b) {
    placement.stage_of_block.push_back(b);
    placement.rank_of_stage.push_back(b);
    placement.recompute.push_back(false);
  }
  return placement;
}

}  // namespace stagecraft::testing
