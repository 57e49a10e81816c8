// What more would buy: a micro-batch, blocks that run again, a device; each tried, not guessed.
//
// Pure function unless a deadline is given. Any thread.
#pragma once

#include <string>
#include <vector>

#include "partitioner/solver/front.h"

namespace stagecraft {

// A line each, without a full stop, for the chosen plan of `front`, which `find_front` made of the
// same arguments; what cannot be had (no further front plan, more stages than units) has none.
// A device more is a copy of the cluster's last one, at the same link, with a stage of its own.
std::vector<std::string> outlook(const BlockGraph& graph, const Cluster& cluster,
                                 const FrontRequest& request, const Front& front);

}  // namespace stagecraft
