// What the search does not split, and what it leaves out.
//
// Plain values and a pure function, any thread.
#pragma once

#include <vector>

#include "partitioner/graph/graph.h"

namespace stagecraft {

// A unit is what the search does not split: a block with its zero convolution, hint and time
// embeddings with a neighbour. A sum is a unit of its own that *follows*: it is never searched but
// runs where the later of its producers does (docs/search.md). Every split of the units that are
// searched into nested down-sets is a valid placement.
struct Units {
  std::vector<std::vector<int>> blocks;  // block indices, ascending; units in topological order
  std::vector<bool> follows;             // by unit
  std::vector<int>
      replicated;  // blocks in no unit: frozen time embeddings, cheaper to run again than to send
};
Units glue(const BlockGraph& graph);

}  // namespace stagecraft
