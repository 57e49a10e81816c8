#include "models/weights/part_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "models/weights/convert.h"
#include "partitioner/base/error.h"
#include "partitioner/base/files.h"
#include "partitioner/base/sha256.h"
#include "partitioner/base/strict_json.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxIndex = int64_t{4} << 20;
constexpr size_t kMaxShards = 1024;  // each one is an open file
constexpr size_t kMaxShardName = 200;

// Download caches hold links to their files; what they lead to must be a regular file.
std::string resolve(const std::string& path) {
  std::error_code error;
  const fs::path resolved = fs::canonical(path, error);
  if (error) {
    throw InputError(ExitCode::kIo, fmt::format("{}: cannot be found: {}", path, error.message()));
  }
  return resolved.string();
}

bool present(const std::string& path) {
  std::error_code ignored;
  return fs::symlink_status(path, ignored).type() != fs::file_type::not_found;
}

// A name out of a file becomes a path, so it must be a plain name of the right kind.
bool acceptable_shard(const std::string& name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return name.size() <= kMaxShardName && name.ends_with(".safetensors") && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), plain);
}

[[noreturn]] void fail_absent(const std::string& folder, const std::string& base) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    for (const std::string_view never : {".bin", ".ckpt", ".pt", ".pth"}) {
      if (extension != never) continue;
      throw InputError(
          ExitCode::kPlanMismatch,
          fmt::format(
              "{}: holds {} but no safetensors file; pickled files are never read: load the "
              "model with diffusers once and save it with "
              "save_pretrained(folder, safe_serialization=True)",
              folder, entry.path().filename().string()));
    }
  }
  if (error) {
    throw InputError(ExitCode::kIo,
                     fmt::format("{}: cannot open the folder: {}", folder, error.message()));
  }
  throw InputError(ExitCode::kIo,
                   fmt::format("{}: holds none of {}.safetensors, {}.fp16.safetensors, "
                               "{}.safetensors.index.json",
                               folder, base, base, base));
}

}  // namespace

PartFiles::PartFiles(const std::string& folder, const std::string& base) {
  // Full precision first.
  struct Candidate {
    std::string_view suffix;
    bool index;
  };
  constexpr std::array kCandidates = {
      Candidate{".safetensors", false},
      Candidate{".safetensors.index.json", true},
      Candidate{".fp16.safetensors", false},
      Candidate{".safetensors.index.fp16.json", true},
  };
  for (const auto& [suffix, index] : kCandidates) {
    const std::string path = fmt::format("{}/{}{}", folder, base, suffix);
    if (!present(path)) continue;
    index ? open_shards(folder, path) : open(path);
    return;
  }
  fail_absent(folder, base);
}

void PartFiles::open(const std::string& path) {
  SafetensorsReader reader(resolve(path));
  const auto claim = [&](const std::string& name) {
    const auto [it, first] = reader_of_.emplace(name, readers_.size());
    if (!first) {
      throw InputError(ExitCode::kNoCheckpoint,
                       fmt::format("{}: tensor '{}' is in {} too", reader.path(), name,
                                   readers_[it->second].path()));
    }
  };
  for (const auto& [name, info] : reader.tensors()) {
    claim(name);
    tensors_.emplace(name, info);
  }
  for (const auto& [name, dtype] : reader.unreadable()) {
    claim(name);
    unreadable_.emplace(name, dtype);
  }
  readers_.push_back(std::move(reader));
}

void PartFiles::open_shards(const std::string& folder, const std::string& index) {
  constexpr ExitCode kDamaged = ExitCode::kNoCheckpoint;
  const auto fail = [&](const std::string& what) {
    throw InputError(kDamaged, fmt::format("{}: {}", index, what));
  };
  const nlohmann::json json =
      parse_strict_json(read_file(resolve(index), kMaxIndex, kDamaged), index, kDamaged);
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) fail("has no object 'weight_map'");
  std::map<std::string, std::set<std::string>> names_of;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string())
      fail(fmt::format("the file of tensor '{}' is not a string", printable(name)));
    const auto& file = shard.get_ref<const std::string&>();
    if (!acceptable_shard(file)) {
      fail(fmt::format("'{}' is not the name of a shard in this folder", printable(file)));
    }
    names_of[file].insert(name);
  }
  if (names_of.size() > kMaxShards) {
    fail(fmt::format("names {} shards, at most {} are read", names_of.size(), kMaxShards));
  }
  for (const auto& [file, names] : names_of) {
    const std::string path = fmt::format("{}/{}", folder, file);
    std::error_code error;
    if (!fs::exists(path, error) && !error) {
      fail(fmt::format("names {}, which is not there; fetch the whole folder again", file));
    }
    const size_t before = reader_of_.size();
    open(path);
    for (const auto& name : names) {
      const auto found = reader_of_.find(name);
      if (found == reader_of_.end() || found->second + 1 != readers_.size()) {
        fail(fmt::format("tensor '{}' is not in {}", printable(name), file));
      }
    }
    if (reader_of_.size() - before != names.size()) {
      fail(fmt::format("{} holds {} tensors, the index names {} of them", file,
                       reader_of_.size() - before, names.size()));
    }
  }
}

void PartFiles::read(const std::string& name, std::span<float> out) const {
  const auto found = reader_of_.find(name);
  check(found != reader_of_.end(), "tensor of another part");
  const SafetensorsReader& reader = readers_[found->second];
  const auto info = tensors_.find(name);
  const DType dtype = info == tensors_.end() ? DType::kF32 : info->second.dtype;
  if (dtype == DType::kF32) {
    reader.read(name, std::as_writable_bytes(out));  // refuses what is unreadable
    return;
  }
  if (dtype != DType::kF16 && dtype != DType::kBF16) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: tensor '{}' is {}, not a floating-point number",
                                 reader.path(), name, to_string(dtype)));
  }
  if (info->second.bytes() != static_cast<int64_t>(out.size()) * 2) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: tensor '{}' has {} bytes, {} expected", reader.path(), name,
                                 info->second.bytes(), out.size() * 2));
  }
  std::vector<uint16_t> buffer(std::min(out.size(), size_t{1} << 17));
  for (size_t at = 0; at < out.size(); at += buffer.size()) {
    const std::span<uint16_t> part(buffer.data(), std::min(buffer.size(), out.size() - at));
    reader.read_part(name, static_cast<int64_t>(at) * 2, std::as_writable_bytes(part));
    const auto target = out.subspan(at, part.size());
    dtype == DType::kF16 ? half_to_float(part, target) : bfloat16_to_float(part, target);
  }
}

const std::string& PartFiles::path_of(const std::string& name) const {
  const auto found = reader_of_.find(name);
  check(found != reader_of_.end(), "tensor of another part");
  return readers_[found->second].path();
}

std::string PartFiles::identity() const {
  // Fine-tuned weights share names and sizes with their origin, so a sample of each tensor counts
  // too.
  constexpr int64_t kSample = 256;
  std::string text;
  for (const auto& reader : readers_) text += sha256_hex(reader.header());
  std::string sample;
  for (const auto& [name, info] : tensors_) {
    const int64_t bytes = info.bytes();
    sample.resize(static_cast<size_t>(std::min(bytes, kSample)));
    const int64_t middle = (bytes - static_cast<int64_t>(sample.size())) / 2;
    readers_[reader_of_.at(name)].read_part(name, middle,
                                            std::as_writable_bytes(std::span(sample)));
    text += sample;
  }
  return sha256_hex(text);
}

}  // namespace stagecraft
