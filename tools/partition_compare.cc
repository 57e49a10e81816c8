// `partition compare`: the plan beside the known splits and the other ways to train the same.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "partition_commands.h"
#include "partitioner/plan/comparison.h"

namespace stagecraft {

int run_compare(const PlanCommand& command) {
  const PlannedJob made = plan_job(command);
  const Comparison comparison =
      compare(made.plan, made.job.graph, made.resolved, made.costs, made.cluster);
  if (command.json) {
    nlohmann::json out = nlohmann::json::parse(to_json(comparison));
    out["code"] = 0;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\nthis plan was chosen by --prefer {}: {}\n", to_text(comparison), command.prefer,
               made.reason);
  }
  return 0;
}

}  // namespace stagecraft
