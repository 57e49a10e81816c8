// plan.yaml against its model: names, messages, explicit orders, the verifier.
#include "partitioner/plan/plan.h"
#include "tests/fuzz/plan_graph.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_plan_resolve(std::string_view input) {
  const std::string path = folder().write("plan.yaml", input);
  try {
    const Plan plan = read_plan(path);
    const ResolvedPlan resolved = resolve_plan(plan, plan_graph(), path);
    require(placement_faults(plan_graph(), resolved.placement).empty(), "the placement is sound");
    require(plan_hash(plan) == plan_hash(read_plan(path)), "a plan's hash is a function of it");
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid, ExitCode::kPlanMismatch});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(plan_resolve)
}  // namespace stagecraft::fuzz
