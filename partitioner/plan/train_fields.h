// The keys that the training file and the plan file share: model, width, height, precision, batch,
// micro_batch, trainable.
//
// Internal to partitioner/plan.
#pragma once

#include <string>

#include "partitioner/base/strict_yaml.h"
#include "partitioner/plan/train_config.h"

namespace stagecraft {

// A relative model path becomes relative to the folder of `file`. Faults go to `document`.
void read_planned_fields(YamlDocument& document, Fields& fields, const std::string& file,
                         TrainConfig& config);

}  // namespace stagecraft
