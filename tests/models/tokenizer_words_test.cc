#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/words.h"

namespace stagecraft {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words(std::string_view caption) {
  std::vector<std::string> out;
  for (const Piece& piece : split_caption(caption)) {
    out.push_back(piece.kind == Piece::kBegin ? "BEGIN"
                  : piece.kind == Piece::kEnd ? "END"
                                              : piece.word);
  }
  return out;
}

TEST(SplitCaption, SeparatesLettersDigitsAndSigns) {
  EXPECT_THAT(words("Cat42 (two!)"), ElementsAre("cat", "4", "2", "(", "two", "!)"));
}

TEST(SplitCaption, TakesContractionsOffWords) {
  EXPECT_THAT(words("IT'S we'll 'tis !'s"),
              ElementsAre("it", "'s", "we", "'ll", "'t", "is", "!'", "s"));
}

TEST(SplitCaption, DropsEveryKindOfWhiteSpace) {
  EXPECT_THAT(words(" a\tb\u00a0c\u3000d\u0085\n"), ElementsAre("a", "b", "c", "d"));
  EXPECT_TRUE(words(" \r\n").empty());
}

TEST(SplitCaption, ComposesBeforeItLowers) {
  EXPECT_THAT(words("E\u0301"), ElementsAre("\u00e9"));
  EXPECT_THAT(words("\u0130"), ElementsAre("i", "\u0307"));  // no longer a letter with its mark
}

TEST(SplitCaption, FindsSpecialTokensSpelledExactly) {
  EXPECT_THAT(words("a<|endoftext|>b <|startoftext|>"), ElementsAre("a", "END", "b", "BEGIN"));
  EXPECT_THAT(words("<|ENDOFTEXT|>!"), ElementsAre("<|", "endoftext", "|>", "!"));
  EXPECT_THAT(words("<|endoftext|"), ElementsAre("<|", "endoftext", "|"));
}

TEST(SplitCaption, DoesNotUnescape) { EXPECT_THAT(words("&amp;"), ElementsAre("&", "amp", ";")); }

}  // namespace
}  // namespace stagecraft
