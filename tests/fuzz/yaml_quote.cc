// Any text that is written into a YAML file reads back as the same text.
#include "partitioner/base/strict_yaml.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

constexpr size_t kLongestQuoted = 10'000;  // a line of a file is at most 64 KiB, escapes included

void fuzz_yaml_quote(std::string_view input) {
  if (input.size() > kLongestQuoted || first_invalid_utf8(input)) return;
  const std::string text = "key: " + yaml_quote(input) + "\nbehind: 1\n";
  const YamlDocument document = YamlDocument::parse(text, "quoted");
  document.throw_if_errors();
  const YamlNode* node = document.root().find("key");
  require(node != nullptr && node->kind == YamlNode::Kind::kScalar && node->text == input,
          "a quoted text reads back: " + text);
  require(document.root().find("behind") != nullptr, "a quoted text ends where it should: " + text);
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(yaml_quote)
}  // namespace stagecraft::fuzz
