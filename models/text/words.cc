#include "models/text/words.h"

#include <fmt/format.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>
#include <unicode/unistr.h>

#include <algorithm>
#include <array>

#include "partitioner/base/error.h"
#include "partitioner/base/utf8.h"

namespace stagecraft {
namespace {

constexpr std::array<std::u32string_view, 7> kContractions = {U"'s", U"'t",  U"'re", U"'ve",
                                                              U"'m", U"'ll", U"'d"};
// A special token that is spelled in capitals is no special token, but it ends where that would, in
// these parts.
constexpr std::array<std::array<std::u32string_view, 3>, 2> kSpecialWords = {
    {{U"<|", U"startoftext", U"|>"}, {U"<|", U"endoftext", U"|>"}}};

bool is_space(char32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)); }
bool is_letter(char32_t c) {
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_L_MASK) != 0;
}
bool is_number(char32_t c) {
  return (U_MASK(u_charType(static_cast<UChar32>(c))) & U_GC_N_MASK) != 0;
}
bool is_other(char32_t c) { return !is_space(c) && !is_letter(c) && !is_number(c); }

void require_utf8(std::string_view text) {
  if (const auto bad = first_invalid_utf8(text)) {
    throw InputError(
        ExitCode::kDataInvalid,
        fmt::format("caption is not UTF-8 at byte {}: save the captions as UTF-8", *bad));
  }
}

std::u32string normalized(std::string_view text) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  check(U_SUCCESS(status), "ICU has no NFC data");
  const auto source = icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<int32_t>(text.size())));
  const icu::UnicodeString composed = nfc->normalize(source, status);
  check(U_SUCCESS(status), "ICU cannot normalise");
  std::u32string out;
  for (int32_t i = 0; i < composed.length(); i = composed.moveIndex32(i, 1)) {
    const UChar32 c = composed.char32At(i);
    // The one letter whose lower case is two characters whatever stands around it.
    if (c == 0x130) {
      out += U"i\u0307";
    } else {
      out += static_cast<char32_t>(u_tolower(c));
    }
  }
  return out;
}

std::string utf8(std::u32string_view text) {
  std::string out;
  icu::UnicodeString::fromUTF32(reinterpret_cast<const UChar32*>(text.data()),
                                static_cast<int32_t>(text.size()))
      .toUTF8String(out);
  return out;
}

class WordScanner {
 public:
  WordScanner(std::u32string_view text, std::vector<Piece>& pieces)
      : text_(text), pieces_(pieces) {}
  void run() {
    while (!text_.empty()) {
      if (is_space(text_.front())) {
        text_.remove_prefix(1);
      } else if (!take_special() && !take_contraction()) {
        take(run_length());
      }
    }
  }

 private:
  void take(size_t length) {
    pieces_.push_back({.kind = Piece::kWord, .word = utf8(text_.substr(0, length))});
    text_.remove_prefix(length);
  }
  bool take_special() {
    for (const auto& parts : kSpecialWords) {
      std::u32string whole;
      for (const auto& part : parts) whole += part;
      if (!text_.starts_with(whole)) continue;
      for (const auto& part : parts) take(part.size());
      return true;
    }
    return false;
  }
  bool take_contraction() {
    for (const auto& contraction : kContractions) {
      if (!text_.starts_with(contraction)) continue;
      take(contraction.size());
      return true;
    }
    return false;
  }
  size_t run_length() const {
    if (is_number(text_.front())) return 1;
    bool (*belongs)(char32_t) = is_letter(text_.front()) ? is_letter : is_other;
    size_t length = 1;
    while (length < text_.size() && belongs(text_[length])) ++length;
    return length;
  }

  std::u32string_view text_;
  std::vector<Piece>& pieces_;
};

}  // namespace

std::vector<Piece> split_caption(std::string_view caption) {
  require_utf8(caption);
  std::vector<Piece> pieces;
  while (!caption.empty()) {
    const size_t begin = caption.find(kBeginOfText), end = caption.find(kEndOfText);
    const size_t special = std::min({begin, end, caption.size()});
    const std::u32string text = normalized(caption.substr(0, special));
    WordScanner(text, pieces).run();
    caption.remove_prefix(special);
    if (caption.empty()) break;
    pieces.push_back({.kind = special == begin ? Piece::kBegin : Piece::kEnd, .word = {}});
    caption.remove_prefix(special == begin ? kBeginOfText.size() : kEndOfText.size());
  }
  return pieces;
}

}  // namespace stagecraft
