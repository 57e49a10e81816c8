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
constexpr size_t kHashDigits = 64;

// What a manifest of a data set can have at most. An escaped byte of a path takes six.
struct Limits {
  int64_t bytes = 64 << 10;
  size_t values = 1000;
};

Limits limits_of(const Dataset& dataset) {
  constexpr int64_t kBytes = 1024, kEscaped = 6;
  constexpr size_t kValues = 20;
  Limits limits;
  for (const SampleFiles& sample : dataset.samples) {
    limits.bytes +=
        kBytes + kEscaped * static_cast<int64_t>(sample.source.size() + sample.target.size());
    limits.values += kValues;
  }
  return limits;
}

int64_t whole_number(const json& value) {
  if (!value.is_number_integer()) throw InputError(ExitCode::kDataInvalid, "a number is not whole");
  return value.get<int64_t>();
}

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

CacheManifest parse(const std::string& text, size_t max_values) {
  const json root = parse_strict_json(text, max_values);
  CacheManifest manifest;
  if (root.at("format") != kFormat) throw InputError(ExitCode::kDataInvalid, "another format");
  manifest.index_hash = hash_of(root.at("prompt_json"));
  manifest.width = whole_number(root.at("width"));
  manifest.height = whole_number(root.at("height"));
  for (const auto& [path, facts] : root.at("pictures").items()) {
    manifest.pictures[path] = {
        .stamp = {.size = whole_number(facts.at(0)), .modified_ns = whole_number(facts.at(1))},
        .hash = hash_of(facts.at(2)),
        .width = whole_number(facts.at(3)),
        .height = whole_number(facts.at(4))};
  }
  manifest.captions = hashes_of(root.at("captions"));
  manifest.latents = hashes_of(root.at("latents"));
  for (const json& place : root.at("caption_of")) {
    manifest.caption_of.push_back(whole_number(place));
  }
  const auto captions = static_cast<int64_t>(manifest.captions.size());
  const bool inside = std::all_of(manifest.caption_of.begin(), manifest.caption_of.end(),
                                  [captions](int64_t at) { return at >= 0 && at < captions; });
  if (!inside || captions == 0 || manifest.latents.size() != manifest.caption_of.size()) {
    throw InputError(ExitCode::kDataInvalid, "its tables do not fit together");
  }
  return manifest;
}

}  // namespace

CacheManifest read_manifest(const std::string& path, const Dataset& dataset) {
  const Limits limits = limits_of(dataset);
  std::string why;
  try {
    return parse(read_file(path, limits.bytes), limits.values);
  } catch (const FileTooLarge&) {
    why = fmt::format("more than {} bytes for {} samples", limits.bytes, dataset.samples.size());
  } catch (const JsonFault&) {
    why = "not the JSON that was written";
  } catch (const json::exception&) {
    why = "not the JSON that was written";
  } catch (const InputError& error) {
    if (error.code() != ExitCode::kDataInvalid) throw;
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
