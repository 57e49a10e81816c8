#include "models/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/text/byte_pairs.h"
#include "models/text/vocabulary_files.h"
#include "models/text/words.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

int64_t special_id(const VocabularyFiles& files, std::string_view token) {
  const auto found = files.vocabulary.ids.find(std::string(token));
  if (found == files.vocabulary.ids.end()) {
    throw InputError(
        ExitCode::kPlanMismatch,
        fmt::format("{}: has no token '{}'; it is not CLIP's vocabulary", files.path, token));
  }
  return found->second;
}

BytePairs make_byte_pairs(const VocabularyFiles& files, int64_t unknown) {
  try {
    return BytePairs(files.vocabulary, unknown);
  } catch (const BadMerge& bad) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: the merge {}", files.merge_place(bad.number()), bad.what()));
  }
}

}  // namespace

struct ClipTokenizer::Impl {
  explicit Impl(const VocabularyFiles& files)
      : begin(special_id(files, kBeginOfText)),
        end(special_id(files, kEndOfText)),
        byte_pairs(make_byte_pairs(files, end)) {
    for (const auto& entry : files.vocabulary.ids) size = std::max(size, entry.second + 1);
  }
  int64_t begin, end;
  int64_t size = 0;
  BytePairs byte_pairs;
};

ClipTokenizer::ClipTokenizer(const std::string& folder)
    : impl_(std::make_unique<Impl>(read_vocabulary(folder))) {}
ClipTokenizer::~ClipTokenizer() = default;
ClipTokenizer::ClipTokenizer(ClipTokenizer&&) noexcept = default;

int64_t ClipTokenizer::vocabulary_size() const { return impl_->size; }

std::vector<int64_t> ClipTokenizer::encode(std::string_view caption, int64_t length) const {
  check(length >= 2, "a caption needs room for its begin and its end");
  const auto room = static_cast<size_t>(length) - 1;  // before the last end token
  std::vector<int64_t> ids = {impl_->begin};
  for (const Piece& piece : split_caption(caption)) {
    if (ids.size() >= room) break;
    if (piece.kind == Piece::kWord) {
      impl_->byte_pairs.append_word(piece.word, ids);
    } else {
      ids.push_back(piece.kind == Piece::kBegin ? impl_->begin : impl_->end);
    }
  }
  ids.resize(std::min(ids.size(), room));
  ids.resize(static_cast<size_t>(length), impl_->end);
  return ids;
}

}  // namespace stagecraft
