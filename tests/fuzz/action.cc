// One action of an explicit order: "F0.2", "S7".
#include "partitioner/schedule/schedule.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_action(std::string_view input) {
  try {
    const Action action = parse_action(input);
    require(parse_action(to_string(action)) == action, "an action reads back as it was written");
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(action)
}  // namespace stagecraft::fuzz
