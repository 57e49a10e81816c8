#include "partitioner/base/strict_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "partitioner/base/error.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Settings {
  int64_t batch = 0;
  double rate = 0;
  bool on = false;
  std::string name;
  std::vector<int64_t> sizes;
};

Settings read_settings(const std::string& text) {
  YamlDocument document = YamlDocument::parse(text, "t.yaml");
  Settings s;
  Fields fields(document, document.root());
  fields.integer("batch", &s.batch, {1, 1024}, kOptional);
  fields.number("rate", &s.rate, {0.0, 1.0}, kOptional);
  fields.boolean("on", &s.on, kOptional);
  fields.string("name", &s.name, kOptional);
  fields.integers("sizes", &s.sizes, {1, 9}, kOptional);
  fields.finish();
  document.throw_if_errors();
  return s;
}

std::string refusal(const std::string& text) {
  const CaughtError error = caught([&] { read_settings(text); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid) << text.substr(0, 80);
  return error.message;
}

TEST(StrictYaml, ReadsEveryType) {
  const Settings s =
      read_settings("batch: 4\nrate: 1e-5\non: true\nname: a b # c\nsizes: [1, 2]\n");
  EXPECT_EQ(s.batch, 4);
  EXPECT_DOUBLE_EQ(s.rate, 1e-5);
  EXPECT_TRUE(s.on);
  EXPECT_EQ(s.name, "a b");
  EXPECT_EQ(s.sizes, (std::vector<int64_t>{1, 2}));
}

struct Fault {
  const char* name;
  std::string text;
  const char* expected;  // part of the message, with the position
};

std::string repeated(const std::string& piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

class StrictYamlFault : public ::testing::TestWithParam<Fault> {};

TEST_P(StrictYamlFault, IsRefusedWithItsPosition) {
  EXPECT_THAT(refusal(GetParam().text), HasSubstr(GetParam().expected));
}

const Fault kFaults[] = {
    {"unknown_key", "batch: 1\nbathc: 2\n",
     "t.yaml:2:1: unknown key `bathc`, did you mean `batch`? (known here: batch, "},
    {"duplicate_key", "batch: 1\nrate: 0.5\nbatch: 2\n",
     "t.yaml:3:1: key `batch` given twice, first in line 1"},
    {"anchor", "batch: &a 1\n", "t.yaml:1:8: anchors are not allowed"},
    {"alias", "batch: &a 1\nrate: *a\n", "t.yaml:2:7: aliases are not allowed"},
    {"self_reference", "sizes: &a [*a]\n", "t.yaml:1:12: aliases are not allowed"},
    {"tag", "batch: !!int 4\n", "t.yaml:1:8: tags are not allowed"},
    {"custom_tag", "name: !include x\n", "t.yaml:1:7: tags are not allowed"},
    {"merge_key", "<<: {batch: 1}\n", "t.yaml:1:1: merge keys are not allowed"},
    {"several_documents", "batch: 1\n---\nbatch: 2\n", "more than one document"},
    {"document_after_end", "batch: 1\n...\nbatch: 2\n", "more than one document"},
    {"tab", "sizes:\n\t- 1\n", "t.yaml:2:1: a tab as indentation"},
    {"empty_file", "", "the file is empty"},
    {"only_comments", "# nothing\n", "the file is empty"},
    {"only_a_scalar", "hello\n", "the file must be a map of keys and values, got `hello`"},
    {"only_a_list", "- 1\n", "the file must be a map of keys and values, got a list"},
    {"nul", std::string("batch: 1\0\n", 10), "t.yaml:1:9: control character 0x00"},
    {"nul_by_escape", "name: \"a\\0b\"\n", "name holds a control character"},
    {"not_utf8", "name: \xff\xfe\n", "t.yaml:1:7: not UTF-8"},
    {"overlong_utf8", "name: \xc0\xaf\n", "not UTF-8"},
    {"surrogate", "name: \xed\xa0\x80\n", "not UTF-8"},
    {"map_as_key", "{batch: 1}: 2\n", "a key must be a word"},
    {"unclosed", "sizes: [1, 2\n", "t.yaml:"},
    {"stray_bracket", "batch: 1\n]\n", "t.yaml:"},
    {"nested", repeated("- ", 33), "t.yaml:1:65: nested deeper than 32"},
    {"many_values", "a:\n" + repeated("- 1\n", 40'000), "more than 40000 values in the file"},
    {"long_line", "name: " + repeated("x", 65'537), "a line of more than 65536 bytes"},
    {"octal_looking", "batch: 010\n",
     "t.yaml:1:8: batch must be a whole number (1 to 1024), got `010`"},
    {"octal", "batch: 0o10\n", "batch must be a whole number"},
    {"hex", "batch: 0x10\n", "batch must be a whole number"},
    {"exponent_as_int", "batch: 1e2\n", "batch must be a whole number"},
    {"float_as_int", "batch: 4.0\n", "batch must be a whole number (1 to 1024), got `4.0`"},
    {"quoted_int", "batch: \"4\"\n",
     "batch must be a whole number (1 to 1024), got the text \"4\""},
    {"plus", "batch: +4\n", "batch must be a whole number"},
    {"underscore", "batch: 1_0\n", "batch must be a whole number"},
    {"zero", "batch: 0\n", "batch is out of range: `0`, allowed is 1 to 1024"},
    {"negative", "batch: -1\n", "batch is out of range: `-1`, allowed is 1 to 1024"},
    {"two_to_64", "batch: 18446744073709551616\n", "batch is out of range: `18446744073709551616`"},
    {"null", "batch:\n", "batch must be a whole number (1 to 1024), got nothing"},
    {"nan", "rate: .nan\n", "rate must be a number (0 to 1), got `.nan`"},
    {"inf", "rate: .inf\n", "rate must be a number"},
    {"nan_word", "rate: nan\n", "rate must be a number"},
    {"overflow", "rate: 1e999\n", "rate is out of range: `1e999`, allowed is 0 to 1"},
    {"above", "rate: 1.5\n", "rate is out of range: `1.5`, allowed is 0 to 1"},
    {"yes", "on: yes\n", "on must be true or false, got `yes`"},
    {"capital_true", "on: True\n", "on must be true or false, got `True`"},
    {"number_as_bool", "on: 1\n", "on must be true or false"},
    {"number_as_text", "name: 4\n", "name must be a text, got `4`"},
    {"octal_as_text", "name: 010\n", "name must be a text"},
    {"norway", "name: no\n", "name must be a text, got `no`; put it in quotes"},
    {"empty_text", "name: \"\"\n", "name must not be empty"},
    {"list_as_text", "name: [a]\n", "name must be a text, got a list"},
    {"scalar_as_list", "sizes: 3\n", "sizes must be a list, got `3`"},
    {"wrong_member", "sizes: [1, 10]\n",
     "t.yaml:1:12: sizes[1] is out of range: `10`, allowed is 1 to 9"},
};
INSTANTIATE_TEST_SUITE_P(Table, StrictYamlFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(StrictYaml, CollectsAllErrorsInOrder) {
  EXPECT_EQ(refusal("rate: 2\nbatch: x\n\nzzz: 1\non: maybe\n"),
            "t.yaml:1:7: rate is out of range: `2`, allowed is 0 to 1\n"
            "t.yaml:2:8: batch must be a whole number (1 to 1024), got `x`\n"
            "t.yaml:4:1: unknown key `zzz` (known here: batch, rate, on, name, sizes)\n"
            "t.yaml:5:5: on must be true or false, got `maybe`");
}

TEST(StrictYaml, MissingRequiredKeyIsNamed) {
  YamlDocument document = YamlDocument::parse("a: {b: 1}\n", "t.yaml");
  int64_t out = 0;
  Fields fields(document, *document.root().find("a"), "a");
  fields.integer("b", &out, {0, 9});
  fields.integer("c", &out, {0, 9});
  const CaughtError error = caught([&] { document.throw_if_errors(); });
  EXPECT_EQ(error.message, "t.yaml:1:4: key `a.c` is missing");
}

TEST(StrictYaml, QuotedTextThatLooksLikeANumberIsText) {
  EXPECT_EQ(read_settings("name: \"010\"\n").name, "010");
}

TEST(StrictYaml, FarFromAnyKeyGetsNoSuggestion) {
  EXPECT_THAT(refusal("quite_something: 1\n"), Not(HasSubstr("did you mean")));
}

TEST(StrictYaml, ReportsAtMostAHundredErrors) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "zz" + std::to_string(i) + ": 1\n";
  const std::string message = refusal(text);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 100);
  EXPECT_THAT(message, HasSubstr("and 400 more errors"));
}

TEST(StrictYaml, QuoteReadsBackAsTheSameText) {
  for (const std::string text : {"plain", "no", "1e5", "010", "-", "a: b", "#x", "a\"b\\c", "~",
                                 "../x y", "\xc3\xa9", "[1]", "null", ".5"}) {
    EXPECT_EQ(read_settings("name: " + yaml_quote(text) + "\n").name, text);
  }
}

TEST(StrictYaml, AFileWithOneByteTooManyIsRefused) {
  TempFolder folder;
  const std::string path = folder.write("t.yaml", std::string((320 << 10) + 1, '\n'));
  const CaughtError error = caught([&] { YamlDocument::read(path); });
  EXPECT_EQ(error.code, ExitCode::kConfigInvalid);
  EXPECT_EQ(error.message, path + ":1:1: larger than the 327680 bytes allowed for such a file");
}

}  // namespace
}  // namespace stagecraft
