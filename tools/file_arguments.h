// Files that are named on the command lines of both programs.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "partitioner/cost/device.h"
#include "partitioner/plan/plan.h"

namespace stagecraft {

// Before the work, not after: throws Error (2) when the output, given by `flag`, is an input as
// well, which it would destroy, and InputError (7) when its folder is not there or may not be
// written to. What is empty is not given.
using Inputs = std::vector<std::pair<const char*, std::string>>;
// `made_later`: a folder that the program makes itself; empty: none.
void check_output(const char* flag, const std::string& output, const Inputs& inputs,
                  const std::string& made_later = {});

// The cluster file and the device files that it names; none when it is not given. Throws as
// `load_cluster`.
Inputs cluster_inputs(const std::string& name);

// `name`, or configs/clusters/<name>.yaml when there is no such file. Throws InputError (7), which
// lists those that are shipped, when there is neither.
std::string cluster_file(const std::string& name);
// The cluster in it. Throws InputError, ConfigError.
Cluster load_cluster(const std::string& name);

// The file of the cluster that a plan names, in configs/clusters or beside its model's folder;
// empty when there is none.
std::string cluster_file_of(const Plan& plan);

}  // namespace stagecraft
