// CLIP's byte-pair tokenizer, equal to transformers' CLIPTokenizer (5.24): NFC, white space, lower case.
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
  // Folder with vocab.json and merges.txt (or tokenizer.json). Throws InputError(kPlanMismatch) naming file and line.
  explicit ClipTokenizer(const std::string& folder);
  ~ClipTokenizer();
  ClipTokenizer(ClipTokenizer&&) noexcept;
  // `length` ids: begin, caption (truncated), end, padded with the end token. Throws InputError(kDataInvalid) when
  // the caption is not UTF-8.
  std::vector<int64_t> encode(std::string_view caption, int64_t length = 77) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace stagecraft
