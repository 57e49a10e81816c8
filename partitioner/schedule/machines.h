// Machines that run a schedule's messages without any buffering, for the verifier.
//
// Compute actions never wait here: that everything they need stands before them is checked
// elsewhere. Pure functions, any thread.
#pragma once

#include <string>

#include "partitioner/schedule/schedule.h"

namespace stagecraft {

enum class Machine {
  kQueue,              // one blocking queue per rank in list order; groups mean nothing
  kIndependentGroups,  // messages of a group are all posted at once, each pair in order; the rank
                       // goes on when all are done
  kAtomicGroups,       // messages of a group start together, when every partner is at its own group
};

// Empty when every rank reaches the end; otherwise one line with the wait-for cycle.
// Every message number has exactly one S, on its src_rank, and one R, on its dst_rank.
std::string run_machine(Machine machine, const Schedule& schedule);

}  // namespace stagecraft
