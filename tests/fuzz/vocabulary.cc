// vocab.json, merges.txt and a caption, with a NUL between them.
#include "models/text/tokenizer.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

std::string_view take_until_nul(std::string_view& rest) {
  const size_t end = std::min(rest.find('\0'), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

void fuzz_vocabulary(std::string_view input) {
  folder().write("vocab.json", take_until_nul(input));
  folder().write("merges.txt", take_until_nul(input));
  try {
    const ClipTokenizer tokenizer(folder().path().string());
    const auto ids = tokenizer.encode(input);
    require(ids.size() == 77, "a caption has the length that was asked for");
    for (const int64_t id : ids) {
      require(id >= 0 && id < tokenizer.vocabulary_size(), "an id is inside the vocabulary");
    }
  } catch (const InputError& error) {
    accept(error, {ExitCode::kPlanMismatch, ExitCode::kDataInvalid});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(vocabulary)
}  // namespace stagecraft::fuzz
