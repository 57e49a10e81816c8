// A rank's memory and measurements as JSON objects, for measured.json and the report. Internal to
// plan; pure functions, any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "partitioner/plan/measured.h"

namespace stagecraft {

nlohmann::json to_json(const RankMemory& memory);
// Without the lines that are not measured.
nlohmann::json to_json(const MeasuredRank& rank);

}  // namespace stagecraft
