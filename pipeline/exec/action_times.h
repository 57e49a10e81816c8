// When a rank's actions of one step ran: what a trace shows and a rehearsal is judged by.
//
// Written by the executor, one entry for each action of the rank's list, in place: nothing is
// allocated while a step runs, and a step overwrites the one before. Used by the executor's thread.
#pragma once

#include <chrono>
#include <vector>

namespace stagecraft {

// On the steady clock, which all processes of a host share.
struct ActionTime {
  std::chrono::steady_clock::time_point start, end;
};

// By index in the rank's list. Of a compute action: from its first block to its last, waits between
// them included. Of a message: its way through the link as this side saw it
// (Operation::on_its_way). Of the step: from the last action to the last send.
using ActionTimes = std::vector<ActionTime>;

}  // namespace stagecraft
