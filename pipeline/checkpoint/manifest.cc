#include "pipeline/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "stagecraft.checkpoint.1", kFamily = "stagecraft.checkpoint.";
constexpr std::string_view kBeforeDigest = "{\"sha256\": \"", kBehindDigest = "\",\n";
constexpr size_t kDigestSize = 64;

bool is_digest(const std::string& text) {
  return text.size() == kDigestSize &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_plain_name(const std::string& name) {
  constexpr size_t kLongest = 200;
  return !name.empty() && name.size() <= kLongest && name.front() != '.' && name != kManifestName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '_' || c == '-' || c == '.';
         });
}

// All behind line 1.
std::string body_text(const CheckpointManifest& manifest) {
  Json files = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"sha256", file.sha256}});
  }
  const Json body = {{"format", kFormat},
                     {"steps", manifest.steps},
                     {"same", manifest.same},
                     {"settings", manifest.settings},
                     {"files", std::move(files)}};
  return body.dump(1).substr(2) + '\n';  // without "{\n", which line 1 is
}

NamedValues named_values(const Json& object) {
  NamedValues values;
  for (const auto& [name, value] : object.items()) values[name] = value.get<std::string>();
  return values;
}

CheckpointManifest manifest_of(const Json& root, const std::string& where) {
  JsonFields fields(root, "", where);
  CheckpointManifest manifest;
  fields.text("sha256");
  const std::string format = fields.text("format");
  if (format != kFormat && format.starts_with(kFamily)) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: made by another version of this program ({}, {} is read "
                                 "here); go on with that one",
                                 where, printable(format), kFormat));
  }
  if (format != kFormat) fields.fail("format", "is not the one this program reads");
  manifest.steps = fields.count("steps");
  manifest.same = named_values(fields.object("same"));
  manifest.settings = named_values(fields.object("settings"));
  for (const Json& entry : fields.list("files")) {
    JsonFields file(entry, "files", where);
    CheckpointFile& read = manifest.files.emplace_back();
    read.name = file.text("name");
    if (!is_plain_name(read.name)) file.fail("name", "is no plain file name");
    const size_t count = manifest.files.size();
    if (count > 1 && manifest.files[count - 2].name >= read.name) {
      file.fail("name", "is not behind the one before it");
    }
    read.bytes = file.count("bytes");
    read.sha256 = file.text("sha256");
    if (!is_digest(read.sha256)) file.fail("sha256", "is no SHA-256");
    file.finish();
  }
  fields.finish();
  return manifest;
}

}  // namespace

std::string manifest_digest(const CheckpointManifest& manifest) {
  return sha256_hex(body_text(manifest));
}

std::string manifest_text(const CheckpointManifest& manifest) {
  const std::string body = body_text(manifest);
  return fmt::format("{}{}{}{}", kBeforeDigest, sha256_hex(body), kBehindDigest, body);
}

CheckpointManifest parse_manifest(std::string_view text, const std::string& where) {
  const auto damaged = [&](std::string_view what) {
    return InputError(ExitCode::kNoCheckpoint, fmt::format("{}: {}", where, what));
  };
  const size_t behind = kBeforeDigest.size() + kDigestSize;
  if (text.size() < behind + kBehindDigest.size()) {
    throw damaged(fmt::format("cut short: {} bytes", text.size()));
  }
  if (!text.starts_with(kBeforeDigest) ||
      text.substr(behind, kBehindDigest.size()) != kBehindDigest) {
    throw damaged("does not begin as a checkpoint's manifest does");
  }
  const std::string_view digest = text.substr(kBeforeDigest.size(), kDigestSize);
  if (sha256_hex(text.substr(behind + kBehindDigest.size())) != digest) {
    throw damaged("its content does not have the SHA-256 of its first line: damaged");
  }
  try {
    return manifest_of(parse_strict_json(text), where);
  } catch (const JsonFault& fault) {
    throw damaged(fault.what());
  } catch (const Json::exception&) {
    throw damaged("a name with a value that is no text");
  } catch (const InputError& error) {
    if (error.code() != ExitCode::kDataInvalid) throw;
    throw InputError(ExitCode::kNoCheckpoint, error.what());
  }
}

}  // namespace stagecraft
