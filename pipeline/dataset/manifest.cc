#include "pipeline/dataset/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "stagecraft cache 1";
constexpr int64_t kMaxManifestBytes = int64_t{4} << 30;
constexpr size_t kHashDigits = 64;

// A key becomes a file name, so it is looked at first.
std::string hash_of(const json& value) {
  const auto text = value.get<std::string>();
  if (text.size() != kHashDigits ||
      text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    throw InputError(ExitCode::kDataInvalid, "a key is no SHA-256");
  }
  return text;
}

std::vector<std::string> hashes_of(const json& list) {
  std::vector<std::string> hashes;
  for (const json& value : list) hashes.push_back(hash_of(value));
  return hashes;
}

CacheManifest parse(const std::string& text) {
  const json root = parse_strict_json(text);
  CacheManifest manifest;
  if (root.at("format") != kFormat) throw InputError(ExitCode::kDataInvalid, "another format");
  manifest.index_hash = hash_of(root.at("prompt_json"));
  manifest.width = root.at("width").get<int64_t>();
  manifest.height = root.at("height").get<int64_t>();
  for (const auto& [path, facts] : root.at("pictures").items()) {
    manifest.pictures[path] = {
        .stamp = {.size = facts.at(0).get<int64_t>(), .modified_ns = facts.at(1).get<int64_t>()},
        .hash = hash_of(facts.at(2)),
        .width = facts.at(3).get<int64_t>(),
        .height = facts.at(4).get<int64_t>()};
  }
  manifest.captions = hashes_of(root.at("captions"));
  manifest.latents = hashes_of(root.at("latents"));
  manifest.caption_of = root.at("caption_of").get<std::vector<int64_t>>();
  const auto captions = static_cast<int64_t>(manifest.captions.size());
  const bool inside = std::all_of(manifest.caption_of.begin(), manifest.caption_of.end(),
                                  [captions](int64_t at) { return at >= 0 && at < captions; });
  if (!inside || captions == 0 || manifest.latents.size() != manifest.caption_of.size()) {
    throw InputError(ExitCode::kDataInvalid, "its tables do not fit together");
  }
  return manifest;
}

}  // namespace

CacheManifest read_manifest(const std::string& path) {
  const std::string text = read_file(path, kMaxManifestBytes);
  std::string why;
  try {
    return parse(text);
  } catch (const JsonFault&) {
    why = "not the JSON that was written";
  } catch (const json::exception&) {
    why = "not the JSON that was written";
  } catch (const InputError& error) {
    why = error.what();
  }
  throw InputError(
      ExitCode::kDataInvalid,
      fmt::format("{}: damaged, {}; delete this file, the next start makes it again", path, why));
}

void write_manifest(const std::string& path, const CacheManifest& manifest) {
  json pictures = json::object();
  for (const auto& [name, facts] : manifest.pictures) {
    pictures[name] = {facts.stamp.size, facts.stamp.modified_ns, facts.hash, facts.width,
                      facts.height};
  }
  const json root = {{"format", kFormat},
                     {"prompt_json", manifest.index_hash},
                     {"width", manifest.width},
                     {"height", manifest.height},
                     {"pictures", std::move(pictures)},
                     {"captions", manifest.captions},
                     {"latents", manifest.latents},
                     {"caption_of", manifest.caption_of}};
  write_file_atomically(path, root.dump());
}

}  // namespace stagecraft
