#include "partitioner/base/strict_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "partitioner/base/files.h"

namespace stagecraft {

using nlohmann::json;

namespace {

constexpr size_t kMaxJsonDepth = 32;

// The library's message without its own number, which goes first.
std::string text_of(const json::exception& error) {
  const std::string_view what = error.what();
  const size_t begin = what.find("] ");
  return printable(begin == std::string_view::npos ? what : what.substr(begin + 2));
}

// Makes the document from the parser's events. The library's own parser with a callback walks over
// a list again for every object in it.
class StrictBuilder : public nlohmann::json_sax<json> {
 public:
  explicit StrictBuilder(size_t max_values) : max_values_(max_values) {}
  json root;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    count();
    if (name.find('\0') != std::string::npos) refuse("holds a key with a NUL");
    auto& object = open_.back()->get_ref<json::object_t&>();
    const auto [entry, is_new] = object.emplace(name, nullptr);
    if (!is_new) refuse(fmt::format("key '{}' occurs twice", printable(name)));
    value_of_key_ = &entry->second;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    const bool is_json = dynamic_cast<const json::parse_error*>(&error) == nullptr;
    throw JsonFault(text_of(error), is_json ? 0 : std::max<size_t>(position, 1));
  }

 private:
  [[noreturn]] static void refuse(const std::string& what) { throw JsonFault(what, 0); }
  void count() {
    if (++values_ > max_values_) refuse(fmt::format("more than {} values", max_values_));
  }
  json* place(json value) {
    count();
    if (open_.empty()) return &(root = std::move(value));
    if (open_.back()->is_object()) return &(*value_of_key_ = std::move(value));
    auto& list = open_.back()->get_ref<json::array_t&>();
    return &list.emplace_back(std::move(value));
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json container) {
    if (open_.size() == kMaxJsonDepth) {
      refuse(fmt::format("nested deeper than {} levels", kMaxJsonDepth));
    }
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const size_t max_values_;
  size_t values_ = 0;
  std::vector<json*> open_;  // stay where they are: only the innermost one grows
  json* value_of_key_ = nullptr;
};

}  // namespace

std::string printable(std::string_view text, size_t max_bytes) {
  std::string out;
  for (const char c : text.substr(0, max_bytes)) {
    out += c >= 0x20 && c < 0x7f ? c : '?';
  }
  return out;
}

json parse_strict_json(std::string_view text, size_t max_values) {
  StrictBuilder builder(max_values);
  json::sax_parse(text.begin(), text.end(), &builder);  // faults come as exceptions
  return std::move(builder.root);
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
    return parse_strict_json(read_file(path, max_bytes, ExitCode::kDataInvalid));
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
  throw InputError(
      ExitCode::kDataInvalid,
      fmt::format("{}: {} {}; make the file again", file_,
                  name.empty() ? "the file" : fmt::format("`{}`", printable(name)), what));
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
