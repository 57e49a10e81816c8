#include "partitioner/base/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "partitioner/base/files.h"

namespace stagecraft {

using nlohmann::json;

namespace {

constexpr int kMaxJsonDepth = 32;
constexpr size_t kMaxShown = 160;

// The library's message without its own number, which goes first.
std::string text_of(const json::exception& error) {
  const std::string_view what = error.what();
  const size_t begin = what.find("] ");
  return printable(begin == std::string_view::npos ? what : what.substr(begin + 2));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxShown)) {
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

json parse_strict_json(std::string_view text) {
  const auto refuse = [](const std::string& what) { throw JsonFault(what, 0); };
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth > kMaxJsonDepth) refuse(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (key.find('\0') != std::string::npos) refuse("holds a key with a NUL");
      if (!keys.back().insert(key).second) {
        refuse(fmt::format("key '{}' occurs twice", printable(key)));
      }
    }
    return true;
  };
  try {
    return json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    throw JsonFault(text_of(error), std::max<size_t>(error.byte, 1));
  } catch (const json::exception& error) {  // a number out of range
    throw JsonFault(text_of(error), 0);
  }
}

json parse_strict_json(std::string_view text, const std::string& where, ExitCode code) {
  try {
    return parse_strict_json(text);
  } catch (const JsonFault& fault) {
    throw InputError(code, fmt::format("{}: {}", where, fault.what()));
  }
}

json read_json(const std::string& path, int64_t max_bytes) {
  try {
    return parse_strict_json(read_file(path, max_bytes));
  } catch (const JsonFault& fault) {
    throw InputError(ExitCode::kDataInvalid,
                     fmt::format("{}: {}; make the file again", path,
                                 fault.byte() > 0 ? "not JSON, or cut short" : fault.what()));
  }
}

JsonFields::JsonFields(const json& object, std::string where, const std::string& file)
    : object_(object), where_(std::move(where)), file_(file) {
  if (!object.is_object()) fail("", "must be an object");
}

JsonFields JsonFields::of_file(const json& root, const std::string& file, std::string_view format) {
  JsonFields fields(root, "", file);
  if (fields.text("format") != format) fields.fail("format", "is not the one this program reads");
  return fields;
}

void JsonFields::fail(const char* key, const char* what) const {
  const std::string name = where_.empty() ? key : *key ? where_ + "." + key : where_;
  throw InputError(ExitCode::kDataInvalid,
                   fmt::format("{}: {} {}; make the file again", file_,
                               name.empty() ? "the file" : fmt::format("`{}`", name), what));
}

const json& JsonFields::at(const char* key) {
  ++asked_;
  const auto found = object_.find(key);
  if (found == object_.end()) fail(key, "is missing");
  return *found;
}

int64_t JsonFields::to_count(const char* key, const json& value) const {
  if (!value.is_number_integer() || value < 0 || value > (int64_t{1} << 60)) {
    fail(key, "must be a whole number from 0 to 2^60");
  }
  return value.get<int64_t>();
}

std::string JsonFields::text(const char* key) {
  const json& value = at(key);
  if (!value.is_string()) fail(key, "must be a text");
  return value.get<std::string>();
}

int64_t JsonFields::count(const char* key) { return to_count(key, at(key)); }

double JsonFields::number(const char* key) {
  const json& value = at(key);
  if (!value.is_number()) fail(key, "must be a number");
  const double number = value.get<double>();
  if (!std::isfinite(number) || number < 0) fail(key, "must be a finite number, 0 or more");
  return number;
}

bool JsonFields::flag(const char* key) {
  const json& value = at(key);
  if (!value.is_boolean()) fail(key, "must be true or false");
  return value.get<bool>();
}

std::vector<bool> JsonFields::flags(const char* key) {
  std::vector<bool> out;
  for (const json& member : list(key)) {
    if (!member.is_boolean()) fail(key, "must hold true or false only");
    out.push_back(member.get<bool>());
  }
  return out;
}

std::vector<int64_t> JsonFields::counts(const char* key) {
  std::vector<int64_t> out;
  for (const json& member : list(key)) out.push_back(to_count(key, member));
  return out;
}

const json& JsonFields::object(const char* key) {
  const json& value = at(key);
  if (!value.is_object()) fail(key, "must be an object");
  return value;
}

const json& JsonFields::list(const char* key) {
  const json& value = at(key);
  if (!value.is_array()) fail(key, "must be a list");
  return value;
}

void JsonFields::finish() {
  if (object_.size() != asked_) fail("", "holds keys that are not known");
}

}  // namespace stagecraft
