// Byte-pair encoding with an end-of-word mark (Sennrich et al., 2016; bytes instead of characters
// as in GPT-2).
//
// Immutable after it is made; any thread. Internal to models/text.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecraft {

// Tokens and merges as they stand in files, in the alphabet that gives each byte a printable
// character.
struct Vocabulary {
  std::map<std::string, int64_t> ids;  // ordered: no choice of tokens makes it slow
  std::vector<std::pair<std::string, std::string>> merges;  // most important first
};

// A merge that names tokens that are not in the vocabulary, or that occurs twice; whoever read it
// knows the file and line.
class BadMerge : public std::runtime_error {
 public:
  BadMerge(size_t number, const std::string& what) : std::runtime_error(what), number_(number) {}
  size_t number() const { return number_; }  // from 0

 private:
  size_t number_;
};

class BytePairs {
 public:
  // `unknown`: id for bytes that the vocabulary does not hold. Throws BadMerge.
  BytePairs(const Vocabulary& vocabulary, int64_t unknown);
  // Appends the ids of one word (any bytes, not empty). Time n log n in its length.
  void append_word(std::string_view word, std::vector<int64_t>& ids) const;

 private:
  struct Merge {
    int64_t rank, id;
  };
  const Merge* find(int64_t left, int64_t right) const;

  std::array<int64_t, 256> inner_ = {};                  // ids of single bytes inside a word
  std::array<int64_t, 256> last_ = {};                   // and at its end
  std::map<std::pair<int64_t, int64_t>, Merge> merges_;  // by the ids of left and right
};

// The printable character of a byte, as UTF-8.
std::string byte_character(uint8_t byte);

}  // namespace stagecraft
