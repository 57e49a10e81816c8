#include "partitioner/base/utf8.h"

#include <gtest/gtest.h>

namespace stagecraft {
namespace {

TEST(Utf8, KnowsTheShortestFormsOnly) {
  for (const char* good :
       {"", "plain", "caf\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBF\xBF"}) {
    EXPECT_EQ(first_invalid_utf8(good), std::nullopt) << good;
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xC3(", "\xFF"}) {
    EXPECT_EQ(first_invalid_utf8(bad), size_t{0});
  }
  EXPECT_EQ(first_invalid_utf8("ab\xE2\x28\xA1"), size_t{2});
}

TEST(Utf8, LengthIsThatOfTheFirstCharacterOnly) {
  EXPECT_EQ(utf8_length("a\xFF"), 1u);
  EXPECT_EQ(utf8_length("\xC3\xA9 and more"), 2u);
  EXPECT_EQ(utf8_length("\xE2\x82\xAC"), 3u);
  EXPECT_EQ(utf8_length("\xF0\x9F\x98\x80\x80"), 4u);
  EXPECT_EQ(utf8_length(std::string_view("\0", 1)), 1u);
  EXPECT_EQ(utf8_length("\xA9"), 0u);
  EXPECT_EQ(utf8_length(""), 0u);
}

}  // namespace
}  // namespace stagecraft
