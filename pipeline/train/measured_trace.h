// The measured schedule of a step: every rank's times brought together, as the simulator gives
// them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "partitioner/plan/plan.h"
#include "partitioner/simulate/simulator.h"
#include "pipeline/exec/action_times.h"
#include "pipeline/train/loop_control.h"

namespace stagecraft {

// Collective. By rank, then in list order, counted from the first start of any of them, which the
// steady clock of one host makes comparable. Throws CommError.
std::vector<TimedAction> gather_action_times(const ActionTimes& mine, LoopControl& control);

// Writes what ui.perfetto.dev shows: the same picture as that of a simulated step. Throws
// InputError(kIo).
void write_measured_trace(const Plan& plan, const Schedule& schedule,
                          const std::vector<TimedAction>& actions, const std::string& path);

}  // namespace stagecraft
