// plan.yaml, as far as it is read without the model.
#include "partitioner/plan/plan.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_plan(std::string_view input) {
  Plan plan;
  try {
    plan = read_plan(folder().write("plan.yaml", input));
  } catch (const ConfigError& error) {
    return accept(error, {ExitCode::kConfigInvalid});
  }
  if (input.size() > kMostReadBack) return;
  const std::string text = to_yaml(plan, BlockGraph{});
  require(read_plan(folder().write("again.yaml", text)) == plan,
          "a plan reads back as it was written: " + text);
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(plan)
}  // namespace stagecraft::fuzz
