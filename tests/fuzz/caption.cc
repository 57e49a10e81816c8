// Captions against a small vocabulary: all bytes, and merges that meet.
#include <nlohmann/json.hpp>

#include "models/text/byte_pairs.h"
#include "models/text/tokenizer.h"
#include "models/text/words.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

ClipTokenizer make_tokenizer() {
  nlohmann::json ids = nlohmann::json::object();
  const auto add = [&](const std::string& token) { ids.emplace(token, ids.size()); };
  for (const char* end : {"", "</w>"}) {
    for (int byte = 0; byte < 256; ++byte) add(byte_character(static_cast<uint8_t>(byte)) + end);
  }
  std::string merges = "#version: 0.2\n";
  for (const auto& [left, right] :
       {std::pair("a", "b"), std::pair("ab", "ab"), std::pair("b", "a"), std::pair("a", "a</w>"),
        std::pair("a", "b</w>"), std::pair("ab", "ab</w>"), std::pair("abab", "abab</w>")}) {
    merges += std::string(left) + " " + right + "\n";
    add(std::string(left) + right);
  }
  add(std::string(kBeginOfText));
  add(std::string(kEndOfText));
  folder().write("small/vocab.json", ids.dump());
  folder().write("small/merges.txt", merges);
  return ClipTokenizer(folder().file("small"));
}

void fuzz_caption(std::string_view input) {
  static const ClipTokenizer tokenizer = make_tokenizer();
  try {
    const auto ids = tokenizer.encode(input);
    require(ids.size() == 77, "a caption has the length that was asked for");
    require(!first_invalid_utf8(input), "only UTF-8 is encoded");
    for (const int64_t id : ids) {
      require(id >= 0 && id < tokenizer.vocabulary_size(), "an id is inside the vocabulary");
    }
  } catch (const InputError& error) {
    accept(error, {ExitCode::kDataInvalid});
    require(first_invalid_utf8(input).has_value(), "all of UTF-8 is encoded");
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(caption)
}  // namespace stagecraft::fuzz
