// The graph that plans of the target plan_resolve are for: a skip, and a frozen block that two
// others read. Its hash stands in the seeds.
#pragma once

#include "tests/support/toy_graph.h"

namespace stagecraft::fuzz {

inline const BlockGraph& plan_graph() {
  static const BlockGraph graph = ToyGraph()
                                      .add("time", {"input.t"}, false)
                                      .add("a", {"input.x"}, false)
                                      .add("b", {"a"}, true)
                                      .add("c", {"b", "time"}, true)
                                      .add("d", {"c", "time"}, true)
                                      .add("e", {"d", "b"}, true)
                                      .build("e");
  return graph;
}

}  // namespace stagecraft::fuzz
