// The parts of the text report that have a row or a column for each rank.
//
// Pure functions, any thread. Each gives several lines, each ended.
#pragma once

#include <string>

#include "partitioner/plan/report.h"

namespace stagecraft {

// What every rank holds, line by line: one table with a column for each, or, where there are
// measurements, a table for each with predicted and measured.
std::string memory_lines(const Report& report);
// A row for each rank: device, busy, memory, blocks.
std::string rank_table(const Report& report);

}  // namespace stagecraft
