// tokenizer.json, the vocabulary in one file.
#include "models/text/tokenizer.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void fuzz_tokenizer_json(std::string_view input) {
  folder().write("one/tokenizer.json", input);
  try {
    const ClipTokenizer tokenizer(folder().file("one"));
    for (const int64_t id : tokenizer.encode("a cat")) {
      require(id >= 0 && id < tokenizer.vocabulary_size(), "an id is inside the vocabulary");
    }
  } catch (const InputError& error) {
    accept(error, {ExitCode::kPlanMismatch});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(tokenizer_json)
}  // namespace stagecraft::fuzz
