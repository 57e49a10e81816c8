// Splits a caption into the pieces that CLIP encodes one by one: special tokens and words.
//
// Pure function; any thread. Internal to models/text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace stagecraft {

inline constexpr std::string_view kBeginOfText = "<|startoftext|>";
inline constexpr std::string_view kEndOfText = "<|endoftext|>";

struct Piece {
  enum Kind { kWord, kBegin, kEnd } kind = kWord;
  std::string word;  // UTF-8 in NFC and lower case; empty for the others
  bool operator==(const Piece&) const = default;
};

// Throws InputError(kDataInvalid) naming the byte when `caption` is not UTF-8.
std::vector<Piece> split_caption(std::string_view caption);

}  // namespace stagecraft
