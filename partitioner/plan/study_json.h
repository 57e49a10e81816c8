// What stands beside a plan as JSON objects, for the report and the comparison. Internal to plan;
// pure functions, any thread.
#pragma once

#include <nlohmann/json.hpp>

#include "partitioner/plan/study.h"

namespace stagecraft {

nlohmann::json to_json(const FrontPoint& point);
nlohmann::json to_json(const Alternative& other);

}  // namespace stagecraft
