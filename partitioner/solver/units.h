// What the search does not split, and what it leaves out.
//
// Plain values and a pure function, any thread.
#pragma once

#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// A unit is what the search does not split: a block with its zero convolution, a sum with its first
// consumer, hint and time embeddings with a neighbour (docs/search.md). Every split of the units
// into nested down-sets is a valid placement.
struct Units {
  std::vector<std::vector<int>> blocks;  // block indices, ascending; units in topological order
  // Blocks in no unit: frozen time embeddings, cheaper to run again than to send.
  std::vector<int> replicated;
};
Units glue(const BlockGraph& graph);

}  // namespace stagecraft
