#include "partitioner/base/strict_json.h"

#include <fmt/format.h>

#include <cmath>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"

namespace stagecraft {

using nlohmann::json;

json read_json(const std::string& path, int64_t max_bytes) {
  json root = json::parse(read_file(path, max_bytes), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded()) {
    throw InputError(ExitCode::kDataInvalid,
                     fmt::format("{}: not JSON, or cut short; make the file again", path));
  }
  return root;
}

JsonFields::JsonFields(const json& object, std::string where, const std::string& file)
    : object_(object), where_(std::move(where)), file_(file) {
  if (!object.is_object()) fail("", "must be an object");
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
