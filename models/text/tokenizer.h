// CLIP's byte-pair tokenizer, equal to transformers' CLIPTokenizer (5.24): NFC, white space, lower
// case; nothing is unescaped or repaired. <|startoftext|> and <|endoftext|> inside a caption,
// spelled exactly so, are those tokens. Characters are classified by the installed ICU (72:
// Unicode 15.0); the 4,952 younger ones of Unicode 15.1 and 16 are the only ones that transformers
// sees differently (tried with every code point).
//
// Immutable after loading; any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace stagecraft {

class ClipTokenizer {
 public:
  // Folder with vocab.json and merges.txt (or tokenizer.json). Throws InputError: kIo when neither
  // is there, kPlanMismatch naming file and line when it is not such a vocabulary.
  explicit ClipTokenizer(const std::string& folder);
  ~ClipTokenizer();
  ClipTokenizer(ClipTokenizer&&) noexcept;
  // `length` ids: begin, caption (truncated), end, padded with the end token. Throws
  // InputError(kDataInvalid) when the caption is not UTF-8; InternalError when `length` is below 2.
  std::vector<int64_t> encode(std::string_view caption, int64_t length = 77) const;
  // One more than the largest id: the rows that a text encoder's table must have.
  int64_t vocabulary_size() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecraft
