#include "partitioner/base/strict_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

struct FoundFault {
  std::string what;
  size_t byte = 0;
};

FoundFault fault_of(const std::string& text) {
  try {
    parse_strict_json(text);
  } catch (const JsonFault& fault) {
    return {.what = fault.what(), .byte = fault.byte()};
  }
  ADD_FAILURE() << "accepted: " << text;
  return {};
}

TEST(StrictJson, OneKeyMayOccurInSeveralObjectsButNotTwiceInOne) {
  EXPECT_EQ(parse_strict_json(R"({"a": {"a": 1}, "b": [{"a": 2}, {"a": 3}]})")["b"][1]["a"], 3);
  EXPECT_THAT(fault_of(R"({"b": [{"a": 2, "a": 3}]})").what, HasSubstr("key 'a' occurs twice"));
  EXPECT_EQ(fault_of(R"({"a": 1, "a": 1})").byte, 0u);
}

TEST(StrictJson, NestingIsCapped) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_strict_json(nested(32)));
  EXPECT_THAT(fault_of(nested(40)).what, HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(fault_of(std::string(1'000'000, '[')).what, HasSubstr("nested deeper"));
}

TEST(StrictJson, ValuesAreCounted) {
  EXPECT_NO_THROW(parse_strict_json(R"([1, {"a": 2}])", 5));
  EXPECT_THAT(fault_of("[" + std::string(300'000, '1') + "]").what, HasSubstr("number"));
  std::string lists = "[[]";
  for (size_t i = 0; i < kMaxJsonValues; ++i) lists += ",[]";
  EXPECT_THAT(fault_of(lists + "]").what, HasSubstr("more than 300000 values"));
}

TEST(StrictJson, WhatIsNoJsonIsNamedWithItsByte) {
  EXPECT_EQ(fault_of("{\"a\": x}").byte, 7u);
  EXPECT_GT(fault_of("").byte, 0u);
  EXPECT_GT(fault_of("{} {}").byte, 0u);
  EXPECT_GT(fault_of("{\"a\": \"\xff\"}").byte, 0u);
  EXPECT_GT(fault_of(std::string("{\"a\0\": 1}", 9)).byte, 0u);
}

TEST(StrictJson, KeysWithNulAndNumbersOutOfRangeAreRefused) {
  EXPECT_THAT(fault_of(R"({"a\u0000": 1})").what, HasSubstr("NUL"));
  EXPECT_THAT(fault_of("[1e999]").what, HasSubstr("number"));
}

TEST(StrictJson, FileWithADuplicateKeyIsRefusedWithAdvice) {
  TempFolder folder;
  const std::string path = folder.write("c.json", R"({"a": 1, "a": 2})");
  const auto error = caught([&] { read_json(path, 1 << 20); });
  EXPECT_EQ(error.code, ExitCode::kDataInvalid);
  EXPECT_THAT(error.message, HasSubstr("c.json: key 'a' occurs twice; make the file again"));
}

TEST(Printable, IsOneShortLineOfAscii) {
  EXPECT_EQ(printable("a\n\x1b\xc3\xa4z"), "a????z");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 160u);
}

}  // namespace
}  // namespace stagecraft
