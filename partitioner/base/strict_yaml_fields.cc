// Typed getters over the tree: JSON's numbers, ranges, unknown keys.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "partitioner/base/strict_yaml.h"

namespace stagecraft {
namespace {

constexpr size_t kShownBytes = 60;

std::string_view describe(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "a single value";
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kMap:
      return "a map";
  }
  return "?";
}

std::string shown(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) return std::string(describe(node.kind));
  const std::string text = excerpt(node.text);
  return node.quoted ? fmt::format("the text \"{}\"", text) : fmt::format("`{}`", text);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the JSON number at the start of `text`, 0 when there is none; `whole` tells whether it
// is an integer.
size_t json_number(std::string_view text, bool* whole) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t start = i;
    while (i < text.size() && is_digit(text[i])) ++i;
    return i - start;
  };
  *whole = true;
  if (i < text.size() && text[i] == '-') ++i;
  const size_t first = i;
  const size_t n = digits();
  if (n == 0 || (n > 1 && text[first] == '0')) return 0;
  if (i < text.size() && text[i] == '.') {
    ++i;
    *whole = false;
    if (digits() == 0) return 0;
  }
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    *whole = false;
    if (i < text.size() && (text[i] == '+' || text[i] == '-')) ++i;
    if (digits() == 0) return 0;
  }
  return i;
}

bool is_json_number(std::string_view text, bool* whole) {
  return !text.empty() && json_number(text, whole) == text.size();
}

// Texts that some reader of YAML takes for something else than text.
bool needs_quotes(std::string_view text) {
  static const std::vector<std::string> words = {"true", "false", "null", "yes", "no",
                                                 "on",   "off",   "y",    "n",   "~"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  if (std::find(words.begin(), words.end(), lower) != words.end()) return true;
  if (text.empty()) return true;
  if (!is_digit(text[0]) && text[0] != '-' && text[0] != '+' && text[0] != '.') return false;
  double value = 0;
  const char* start = text.data() + (text[0] == '+' ? 1 : 0);
  const auto [end, code] = std::from_chars(start, text.data() + text.size(), value);
  return end == text.data() + text.size();
}

std::string range_text(IntRange range) {
  if (range.max == IntRange{}.max) return fmt::format("{} or more", range.min);
  return fmt::format("{} to {}", range.min, range.max);
}

std::string range_text(NumberRange range) {
  if (range.max == NumberRange{}.max) return fmt::format("{} or more", range.min);
  return fmt::format("{} to {}", range.min, range.max);
}

}  // namespace

bool parse_integer(YamlDocument& document, const YamlNode& node, const std::string& name,
                   IntRange range, int64_t* out) {
  bool whole = false;
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || !is_json_number(node.text, &whole) ||
      !whole) {
    document.error(node.mark, fmt::format("{} must be a whole number ({}), got {}", name,
                                          range_text(range), shown(node)));
    return false;
  }
  int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [parsed, code] = std::from_chars(node.text.data(), end, value);
  if (code != std::errc() || parsed != end || value < range.min || value > range.max) {
    document.error(node.mark, fmt::format("{} is out of range: {}, allowed is {}", name,
                                          shown(node), range_text(range)));
    return false;
  }
  *out = value;
  return true;
}

bool parse_number(YamlDocument& document, const YamlNode& node, const std::string& name,
                  NumberRange range, double* out) {
  bool whole = false;
  if (node.kind != YamlNode::Kind::kScalar || node.quoted || !is_json_number(node.text, &whole)) {
    document.error(node.mark, fmt::format("{} must be a number ({}), got {}", name,
                                          range_text(range), shown(node)));
    return false;
  }
  double value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [parsed, code] = std::from_chars(node.text.data(), end, value);
  if (code != std::errc() || parsed != end || !std::isfinite(value) || value < range.min ||
      value > range.max) {
    document.error(node.mark, fmt::format("{} is out of range: {}, allowed is {}", name,
                                          shown(node), range_text(range)));
    return false;
  }
  *out = value;
  return true;
}

bool parse_boolean(YamlDocument& document, const YamlNode& node, const std::string& name,
                   bool* out) {
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted &&
      (node.text == "true" || node.text == "false")) {
    *out = node.text == "true";
    return true;
  }
  document.error(node.mark, fmt::format("{} must be true or false, got {}", name, shown(node)));
  return false;
}

bool parse_string(YamlDocument& document, const YamlNode& node, const std::string& name,
                  std::string* out) {
  if (node.kind != YamlNode::Kind::kScalar) {
    document.error(node.mark, fmt::format("{} must be a text, got {}", name, shown(node)));
    return false;
  }
  if (node.text.empty()) {
    document.error(node.mark, fmt::format("{} must not be empty", name));
    return false;
  }
  if (!node.quoted && needs_quotes(node.text)) {
    document.error(
        node.mark,
        fmt::format("{} must be a text, got {}; put it in quotes if it is one", name, shown(node)));
    return false;
  }
  for (const char c : node.text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      document.error(node.mark, fmt::format("{} holds a control character", name));
      return false;
    }
  }
  *out = node.text;
  return true;
}

Fields::Fields(YamlDocument& document, const YamlNode& node, std::string where)
    : document_(document), node_(node), where_(std::move(where)) {
  if (node.kind != YamlNode::Kind::kMap) {
    document.error(node.mark, fmt::format("{} must be a map of keys and values, got {}",
                                          where_.empty() ? "the file" : where_, shown(node)));
  }
}

std::string Fields::name(std::string_view key) const {
  return where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
}

YamlMark Fields::mark(std::string_view key) const {
  const YamlMark mark = node_.mark_of_key(key);
  return mark.line == 0 ? node_.mark : mark;
}

const YamlNode* Fields::get(const char* key, YamlPresence presence) {
  known_.emplace_back(key);
  const YamlNode* node = node_.find(key);
  if (node == nullptr && presence == kRequired && node_.kind == YamlNode::Kind::kMap) {
    document_.error(node_.mark, fmt::format("key `{}` is missing", name(key)));
  }
  return node;
}

void Fields::integer(const char* key, int64_t* out, IntRange range, YamlPresence presence) {
  if (const YamlNode* node = get(key, presence)) {
    parse_integer(document_, *node, name(key), range, out);
  }
}

void Fields::integer(const char* key, int* out, IntRange range, YamlPresence presence) {
  range.min = std::max<int64_t>(range.min, std::numeric_limits<int>::min());
  range.max = std::min<int64_t>(range.max, std::numeric_limits<int>::max());
  int64_t value = *out;
  integer(key, &value, range, presence);
  *out = static_cast<int>(value);
}

void Fields::number(const char* key, double* out, NumberRange range, YamlPresence presence) {
  if (const YamlNode* node = get(key, presence)) {
    parse_number(document_, *node, name(key), range, out);
  }
}

void Fields::boolean(const char* key, bool* out, YamlPresence presence) {
  if (const YamlNode* node = get(key, presence)) parse_boolean(document_, *node, name(key), out);
}

void Fields::string(const char* key, std::string* out, YamlPresence presence,
                    const std::vector<std::string>& allowed) {
  const YamlNode* node = get(key, presence);
  std::string value;
  if (node == nullptr || !parse_string(document_, *node, name(key), &value)) return;
  if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), value) == allowed.end()) {
    document_.error(node->mark, fmt::format("{} must be one of {}, got {}", name(key),
                                            fmt::join(allowed, ", "), shown(*node)));
    return;
  }
  *out = value;
}

void Fields::integers(const char* key, std::vector<int64_t>* out, IntRange range,
                      YamlPresence presence) {
  const YamlNode* node = list(key, presence);
  if (node == nullptr) return;
  std::vector<int64_t> values(node->items.size());
  for (size_t i = 0; i < values.size(); ++i) {
    parse_integer(document_, node->items[i], fmt::format("{}[{}]", name(key), i), range,
                  &values[i]);
  }
  *out = std::move(values);
}

void Fields::strings(const char* key, std::vector<std::string>* out, YamlPresence presence) {
  const YamlNode* node = list(key, presence);
  if (node == nullptr) return;
  std::vector<std::string> values(node->items.size());
  for (size_t i = 0; i < values.size(); ++i) {
    parse_string(document_, node->items[i], fmt::format("{}[{}]", name(key), i), &values[i]);
  }
  *out = std::move(values);
}

void Fields::booleans(const char* key, std::vector<bool>* out, YamlPresence presence) {
  const YamlNode* node = list(key, presence);
  if (node == nullptr) return;
  std::vector<bool> values(node->items.size());
  for (size_t i = 0; i < values.size(); ++i) {
    bool value = false;
    parse_boolean(document_, node->items[i], fmt::format("{}[{}]", name(key), i), &value);
    values[i] = value;
  }
  *out = std::move(values);
}

const YamlNode* Fields::list(const char* key, YamlPresence presence) {
  const YamlNode* node = get(key, presence);
  if (node == nullptr || node->kind == YamlNode::Kind::kList) return node;
  document_.error(node->mark, fmt::format("{} must be a list, got {}", name(key), shown(*node)));
  return nullptr;
}

const YamlNode* Fields::map(const char* key, YamlPresence presence) {
  const YamlNode* node = get(key, presence);
  if (node == nullptr || node->kind == YamlNode::Kind::kMap) return node;
  document_.error(node->mark, fmt::format("{} must be a map of keys and values, got {}", name(key),
                                          shown(*node)));
  return nullptr;
}

void Fields::finish() {
  for (const YamlNode::Key& key : node_.keys) {
    if (std::find(known_.begin(), known_.end(), key.name) != known_.end()) continue;
    if (key.name == "<<") continue;  // reported as a merge key
    const std::string nearest =
        document_.is_full() ? std::string() : nearest_word(key.name, known_);
    document_.error(key.mark,
                    fmt::format("unknown key `{}`{} (known here: {})", name(excerpt(key.name)),
                                nearest.empty() ? "" : fmt::format(", did you mean `{}`?", nearest),
                                fmt::join(known_, ", ")));
  }
}

std::string excerpt(std::string_view text) {
  constexpr std::string_view kMore = "...";
  size_t end = std::min(text.size(), kShownBytes);
  const auto continues = [&](size_t i) { return (static_cast<uint8_t>(text[i]) & 0xC0) == 0x80; };
  while (end < text.size() && end > 0 && continues(end)) --end;
  std::string out(text.substr(0, end));
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return end < text.size() ? out.append(kMore) : out;
}

std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongest = 200;  // the table below is quadratic
  if (word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongest) continue;
    std::vector<size_t> row(candidate.size() + 1);
    for (size_t j = 0; j < row.size(); ++j) row[j] = j;
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i + 1;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t changed = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best_distance = row.back();
      best = candidate;
    }
  }
  return best;
}

std::string yaml_quote(std::string_view text) {
  const bool plain = !needs_quotes(text) &&
                     std::all_of(text.begin(), text.end(),
                                 [](unsigned char c) {
                                   return std::isalnum(c) || c == '_' || c == '.' || c == '/' ||
                                          c == '-' || c == '+';
                                 }) &&
                     text.front() != '-' && text.front() != '.';
  if (plain) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace stagecraft
