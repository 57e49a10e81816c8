// measured.json, what a run used.
#include "partitioner/plan/measured.h"

#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_measured(std::string_view input) {
  Measured measured;
  try {
    measured = read_measured(folder().write("measured.json", input));
  } catch (const InputError& error) {
    return accept(error, {ExitCode::kDataInvalid});
  }
  if (input.size() > kMostReadBack) return;
  require(read_measured(folder().write("again.json", to_json(measured))) == measured,
          "a measurement reads back as it was written");
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(measured)
}  // namespace stagecraft::fuzz
