// A strict reader for YAML files that people write: model, device, cluster, training and plan
// files.
//
// It works on the parser's events and refuses, with line and column: unknown and duplicate keys,
// anchors, aliases, tags, merge keys, several documents, tabs as indentation, control characters,
// text that is not UTF-8, wrong types, numbers out of range, files over 320 KiB, more than 40,000
// values, lines over 64 KiB, nesting over 32.
// Numbers are JSON's (no octal, no 1_000, no +4, no .5, no nan); truth is true or false; a text
// that looks like a number, a truth value or null must be quoted. All errors of a file are
// collected and thrown at once as a ConfigError with one `file:line:column: message` per line.
//
//   YamlDocument doc = YamlDocument::read("train.yaml");
//   Fields fields(doc, doc.root());
//   fields.integer("batch", &config.batch, {1, 1 << 20}, kOptional);
//   fields.finish();          // reports the keys nobody asked for
//   doc.throw_if_errors();
//
// Plain values; a document belongs to one thread.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace stagecraft {

struct YamlMark {
  int line = 0, column = 0;  // from 1; 0: no position
  bool operator==(const YamlMark&) const = default;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  struct Key {
    std::string name;
    YamlMark mark;
  };
  Kind kind = Kind::kNull;
  bool quoted = false;  // scalar in quotes: text whatever it looks like
  YamlMark mark;
  std::string text;             // of a scalar
  std::vector<Key> keys;        // of a map, one for each of `items`
  std::vector<YamlNode> items;  // values of a map or members of a list

  // Value of `key`, nullptr when absent or when this is no map. The first one where a key was given
  // twice.
  const YamlNode* find(std::string_view key) const;
  YamlMark mark_of_key(std::string_view key) const;  // {0, 0} when absent
};

class YamlDocument {
 public:
  // Throws InputError(kIo) when the file cannot be read, ConfigError when it is no YAML at all.
  // Errors that leave the structure readable (duplicate keys, anchors, ...) are kept for
  // `throw_if_errors`.
  static YamlDocument read(const std::string& path);
  static YamlDocument parse(std::string_view text, const std::string& file);

  const YamlNode& root() const { return root_; }
  const std::string& file() const { return file_; }

  void error(YamlMark mark, const std::string& message);
  bool is_full() const;  // further errors are only counted
  bool has_errors() const { return !errors_.empty(); }
  // Throws ConfigError with all errors in order of position; the first 100, then how many more.
  void throw_if_errors() const;

 private:
  struct Entry {
    YamlMark mark;
    std::string message;
  };
  explicit YamlDocument(std::string file) : file_(std::move(file)) {}

  std::string file_;
  YamlNode root_;
  std::vector<Entry> errors_;
  int64_t more_errors_ = 0;
};

enum YamlPresence { kRequired, kOptional };

struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min(), max = std::numeric_limits<int64_t>::max();
};
struct NumberRange {
  double min = std::numeric_limits<double>::lowest(), max = std::numeric_limits<double>::max();
};

// Reads the keys of one map. A getter whose key is absent leaves the target as it is; an absent
// required key, a wrong type or a value out of range becomes an error of the document. Lives no
// longer than document and node.
class Fields {
 public:
  // `where` is put before the key in messages ("unet" gives "unet.in_channels").
  Fields(YamlDocument& document, const YamlNode& node, std::string where = "");

  void integer(const char* key, int64_t* out, IntRange range, YamlPresence presence = kRequired);
  void integer(const char* key, int* out, IntRange range, YamlPresence presence = kRequired);
  void number(const char* key, double* out, NumberRange range, YamlPresence presence = kRequired);
  void boolean(const char* key, bool* out, YamlPresence presence = kRequired);
  // Not empty. When `allowed` is given the text is one of it.
  void string(const char* key, std::string* out, YamlPresence presence = kRequired,
              const std::vector<std::string>& allowed = {});
  void integers(const char* key, std::vector<int64_t>* out, IntRange range,
                YamlPresence presence = kRequired);
  void strings(const char* key, std::vector<std::string>* out, YamlPresence presence = kRequired);
  void booleans(const char* key, std::vector<bool>* out, YamlPresence presence = kRequired);
  // The node itself, nullptr when absent or of another kind.
  const YamlNode* list(const char* key, YamlPresence presence = kRequired);
  const YamlNode* map(const char* key, YamlPresence presence = kRequired);

  bool has(std::string_view key) const { return node_.find(key) != nullptr; }
  // Position of a key or, when it is absent, of the map.
  YamlMark mark(std::string_view key) const;
  std::string name(std::string_view key) const;
  // One error per key that no getter asked for, with the nearest known key and all known ones.
  void finish();

 private:
  const YamlNode* get(const char* key, YamlPresence presence);

  YamlDocument& document_;
  const YamlNode& node_;
  std::string where_;
  std::vector<std::string> known_;
};

// One scalar, with the same rules; false after recording an error. `name` is what the message calls
// it.
bool parse_integer(YamlDocument& document, const YamlNode& node, const std::string& name,
                   IntRange range, int64_t* out);
bool parse_number(YamlDocument& document, const YamlNode& node, const std::string& name,
                  NumberRange range, double* out);
bool parse_boolean(YamlDocument& document, const YamlNode& node, const std::string& name,
                   bool* out);
bool parse_string(YamlDocument& document, const YamlNode& node, const std::string& name,
                  std::string* out);

// The candidate nearest to `word` by edit distance, empty when none is near (more than a third of
// its letters differ).
std::string nearest_word(std::string_view word, const std::vector<std::string>& candidates);

// Text out of a file for a message of one line: at most 60 bytes, whole characters, '?' for control
// characters.
std::string excerpt(std::string_view text);

// `text` as a YAML scalar that reads back as the same text: plain when that is safe, else in double
// quotes.
std::string yaml_quote(std::string_view text);

}  // namespace stagecraft
