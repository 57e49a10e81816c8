// This plan among the other ways to train the same: a table of them, and what to make of it.
//
// Plain values and pure functions, any thread. How the figures come about: docs/alternatives.md.
#pragma once

#include <string>
#include <vector>

#include "partitioner/plan/plan.h"
#include "partitioner/plan/study.h"

namespace stagecraft {

// The plan as one of the ways: its fullest rank, its step, nothing exposed. It needs predictions.
Alternative as_way(const Plan& plan);

// A row each, `ours` first: memory, that of the device, step and exposed communication.
std::string ways_table(const Alternative& ours, const std::vector<Alternative>& others);

// One or two sentences with the numbers that decide: whether another way fits and is faster, or
// what keeps it from being so. Empty when there are no others.
std::string advise(const Alternative& ours, const std::vector<Alternative>& others);

}  // namespace stagecraft
