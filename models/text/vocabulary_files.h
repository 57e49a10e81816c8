// Reads a tokenizer's vocabulary: vocab.json with merges.txt, or tokenizer.json. Internal to
// models/text.
#pragma once

#include <functional>
#include <string>

#include "models/text/byte_pairs.h"

namespace stagecraft {

struct VocabularyFiles {
  Vocabulary vocabulary;
  std::string path;         // of the file with the tokens
  std::string merges_path;  // of the one with the merges
  // Where the merge of that number stands: "merges.txt:17".
  std::function<std::string(size_t)> merge_place;
};

// Throws InputError as ClipTokenizer's constructor does.
VocabularyFiles read_vocabulary(const std::string& folder);

}  // namespace stagecraft
