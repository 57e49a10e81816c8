// JSON from files that may be damaged or hostile: duplicate keys, deep nesting, bad UTF-8, NUL in a
// key, trailing text and more values than a file of its kind needs are refused.
//
// The parsers are pure functions, any thread. JsonFields belongs to one thread and lives no longer
// than the JSON value and the file name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "partitioner/base/error.h"

namespace stagecraft {

// What is wrong with a text, in one line of ASCII.
class JsonFault : public std::runtime_error {
 public:
  JsonFault(const std::string& what, size_t byte) : std::runtime_error(what), byte_(byte) {}
  size_t byte() const { return byte_; }  // where it stops being JSON, from 1; 0: JSON, but refused

 private:
  size_t byte_;
};

// Keys and values that a text may hold unless its reader says otherwise. Bounds memory and time: a
// short text can hold a million empty lists. CLIP's tokenizer.json, the largest file of a fixed
// size, holds 250,000.
inline constexpr size_t kMaxJsonValues = 300'000;

// Throws JsonFault.
nlohmann::json parse_strict_json(std::string_view text, size_t max_values = kMaxJsonValues);
// Throws InputError(`code`); `where` starts its message.
nlohmann::json parse_strict_json(std::string_view text, const std::string& where, ExitCode code);

// Text out of a file or from a peer for a message of one line: the first bytes of it, '?' for all
// but printable ASCII, so that the message stays one line and valid UTF-8.
std::string printable(std::string_view text, size_t max_bytes = 160);

// Parses a file. Throws InputError: kIo, or kDataInvalid when it is larger than allowed or no JSON.
nlohmann::json read_json(const std::string& path, int64_t max_bytes);

// Reads the keys of one JSON object strictly: missing keys, keys that are not known, wrong types
// and numbers out of range throw InputError(kDataInvalid) naming file and key. For files that
// programs write; people write YAML.
class JsonFields {
 public:
  // `where` is put before keys in messages ("blocks.a" gives "blocks.a.output").
  JsonFields(const nlohmann::json& object, std::string where, const std::string& file);
  // Of a whole file, whose key "format" must be `format`.
  static JsonFields of_file(const nlohmann::json& root, const std::string& file,
                            std::string_view format);

  std::string text(const char* key);
  int64_t count(const char* key);  // 0 to 2^60
  double number(const char* key);  // finite, 0 or more
  bool flag(const char* key);
  std::vector<bool> flags(const char* key);
  std::vector<int64_t> counts(const char* key);
  const nlohmann::json& object(const char* key);
  const nlohmann::json& list(const char* key);
  void finish();  // refuses keys that were not asked for
  [[noreturn]] void fail(const char* key, const char* what) const;

 private:
  const nlohmann::json& at(const char* key);
  int64_t to_count(const char* key, const nlohmann::json& value) const;

  const nlohmann::json& object_;
  std::string where_;
  const std::string& file_;
  size_t asked_ = 0;
};

}  // namespace stagecraft
