// JSON as data sets, cost tables, manifests and tokenizers hold it.
#include "partitioner/base/strict_json.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_json(std::string_view input) {
  try {
    const nlohmann::json value = parse_strict_json(input, "file.json", ExitCode::kDataInvalid);
    if (input.size() > kMostReadBack) return;
    require(parse_strict_json(value.dump()) == value, "JSON reads back as it was written");
  } catch (const InputError& error) {
    accept(error, {ExitCode::kDataInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(json)
}  // namespace stagecraft::fuzz
