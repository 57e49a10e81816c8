// The training file.
#include "partitioner/plan/train_config.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_train(std::string_view input) {
  try {
    const TrainConfig config = read_train_config(folder().write("train.yaml", input));
    require(validate(config).empty(), "what the reader accepts is valid: " + validate(config));
    require(!canonical_text(config).empty(), "a training file has a canonical text");
  } catch (const ConfigError& error) {
    accept(error, {ExitCode::kConfigInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(train)
}  // namespace stagecraft::fuzz
