#include "pipeline/data/cache_store.h"

#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "models/weights/safetensors.h"
#include "partitioner/base/error.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kLongestWait{1};
constexpr int64_t kBlockBytes = 4096;
constexpr int64_t kHeaderBytes = 512;  // about; of a file with two tensors and their checksums

std::string checksum_name(const std::string& tensor) { return "xxh3." + tensor; }

std::string checksum(std::span<const std::byte> data) {
  return fmt::format("{:016x}", XXH3_64bits(data.data(), data.size()));
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  check(tensor.scalar_type() == at::kFloat && tensor.is_contiguous(),
        "the cache keeps contiguous fp32 tensors");
  return std::as_bytes(std::span(tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())));
}

[[noreturn]] void fail_io(const std::string& folder, const std::string& why) {
  throw InputError(
      ExitCode::kIo,
      fmt::format("cannot write to the cache folder {}: {}; name another one with --cache", folder,
                  why));
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail_io(folder.string(), error.message());
}

}  // namespace

CacheStore::CacheStore(const std::string& folder, const std::string& kind)
    : folder_((fs::path(folder) / kind).string()) {}

std::string CacheStore::path_of(const std::string& key) const {
  // 256 folders keep each one small.
  return folder_ + "/" + key.substr(0, 2) + "/" + key + ".safetensors";
}

bool CacheStore::holds(const std::string& key, std::span<const NamedShape> expected) const {
  const std::string path = path_of(key);
  if (std::error_code ignored; !fs::is_regular_file(path, ignored)) return false;
  try {
    const SafetensorsReader reader(path);
    if (reader.tensors().size() != expected.size()) return false;
    for (const NamedShape& tensor : expected) {
      const auto found = reader.tensors().find(tensor.name);
      if (found == reader.tensors().end() || found->second.dtype != DType::kF32 ||
          found->second.shape != tensor.shape ||
          !reader.metadata().contains(checksum_name(tensor.name))) {
        return false;
      }
    }
    return true;
  } catch (const InputError&) {
    return false;  // damaged: it is made again
  }
}

void CacheStore::write(const std::string& key,
                       std::span<const std::pair<std::string, at::Tensor>> tensors) const {
  const std::string path = path_of(key);
  create_folder(fs::path(path).parent_path());
  std::vector<TensorInfo> table;
  std::map<std::string, std::string> metadata;
  for (const auto& [name, tensor] : tensors) {
    table.push_back({.name = name, .dtype = DType::kF32, .shape = tensor.sizes().vec()});
    metadata[checksum_name(name)] = checksum(bytes_of(tensor));
  }
  SafetensorsWriter writer(path, table, metadata);
  for (const auto& [name, tensor] : tensors) writer.write(name, bytes_of(tensor));
  writer.finish();
}

void CacheStore::read(const std::string& key, const std::string& name, std::span<float> out) const {
  const std::string path = path_of(key);
  const auto refuse = [&](const std::string& why) {
    throw InputError(
        ExitCode::kDataInvalid,
        fmt::format("{}: {}; delete this file, the next start makes it again", path, why));
  };
  try {
    const SafetensorsReader reader(path);
    reader.read(name, std::as_writable_bytes(out));
    const auto kept = reader.metadata().find(checksum_name(name));
    if (kept == reader.metadata().end() || kept->second != checksum(std::as_bytes(out))) {
      refuse(fmt::format("the checksum of \"{}\" is wrong", name));
    }
  } catch (const InputError& error) {
    if (error.code() == ExitCode::kDataInvalid) throw;
    refuse(error.what());
  }
}

Bytes CacheStore::disk_bytes(std::span<const NamedShape> tensors) {
  int64_t bytes = kHeaderBytes;
  for (const NamedShape& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t side : tensor.shape) elements *= side;
    bytes += elements * static_cast<int64_t>(sizeof(float));
  }
  return {(bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes};
}

CacheLock::CacheLock(const std::string& folder, const std::function<void()>& on_wait) {
  create_folder(folder);
  const std::string path = folder + "/lock";
  fd_ = Descriptor(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  if (!fd_) fail_io(folder, std::strerror(errno));
  const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
  for (int turn = 0; ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0; ++turn) {
    const int error = errno;
    if ((error != EWOULDBLOCK && error != EINTR) || std::chrono::steady_clock::now() > deadline) {
      fail_io(folder, error == EWOULDBLOCK ? "another process has been filling it for an hour"
                                           : std::strerror(error));
    }
    if (turn % 20 == 0 && on_wait) on_wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace stagecraft
