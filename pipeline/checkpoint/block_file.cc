#include "pipeline/checkpoint/block_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/weights/safetensors.h"
#include "partitioner/base/error.h"
#include "partitioner/base/sha256.h"

namespace stagecraft {
namespace {

std::string_view bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// All tensors are fp32, so the format's order in the file is that of their names.
template <typename Value>
std::map<std::string, const StateTensor<Value>*> in_file_order(
    const std::vector<StateTensor<Value>>& tensors) {
  std::map<std::string, const StateTensor<Value>*> ordered;
  for (const auto& tensor : tensors) ordered.emplace(tensor.name, &tensor);
  return ordered;
}

// The eight bytes before a safetensors header, little-endian.
std::string length_of(const std::string& header) {
  std::string bytes;
  for (int i = 0; i < 8; ++i)
    bytes += static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i));
  return bytes;
}

}  // namespace

std::string block_file_name(const std::string& block) { return block + ".safetensors"; }

CheckpointFile write_block_file(const std::string& folder, const std::string& name,
                                const std::vector<StoredTensor>& tensors) {
  std::vector<TensorInfo> table;
  for (const auto& tensor : tensors) {
    table.push_back({.name = tensor.name, .dtype = DType::kF32, .shape = tensor.shape});
  }
  SafetensorsWriter writer(folder + "/" + name, table);
  Sha256 digest;
  CheckpointFile written{.name = name, .bytes = 0, .sha256 = {}};
  const auto add = [&](std::string_view bytes) {
    digest.add(bytes);
    written.bytes += static_cast<int64_t>(bytes.size());
  };
  add(writer.header());
  for (const auto& [tensor_name, tensor] : in_file_order(tensors)) {
    writer.write(tensor_name, std::as_bytes(tensor->values));
    add(bytes_of(tensor->values));
  }
  writer.finish();
  written.sha256 = digest.hex();
  return written;
}

void read_block_file(const std::string& folder, const CheckpointFile& expected,
                     const std::vector<TensorToFill>& tensors) {
  const SafetensorsReader reader(folder + "/" + expected.name);
  Sha256 digest;
  digest.add(length_of(reader.header()));
  digest.add(reader.header());
  const auto ordered = in_file_order(tensors);
  for (const auto& [name, info] : reader.tensors()) {
    const auto wanted = ordered.find(name);
    if (wanted == ordered.end() || wanted->second->shape != info.shape ||
        info.dtype != DType::kF32) {
      throw InputError(ExitCode::kPlanMismatch,
                       fmt::format("{}: tensor '{}' is none of this model's trained parameters, or "
                                   "has another shape; resume with the model it was saved from",
                                   reader.path(), name));
    }
  }
  for (const auto& [name, tensor] : ordered) {
    reader.read(name, std::as_writable_bytes(tensor->values));
    digest.add(bytes_of(tensor->values));
  }
  if (digest.hex() != expected.sha256) {
    throw InputError(ExitCode::kNoCheckpoint,
                     fmt::format("{}: does not have the SHA-256 that the manifest gives: damaged",
                                 reader.path()));
  }
  for (const auto& [name, tensor] : ordered) {
    if (!std::all_of(tensor->values.begin(), tensor->values.end(),
                     [](float value) { return std::isfinite(value); })) {
      throw InputError(ExitCode::kNoCheckpoint,
                       fmt::format("{}: tensor '{}' holds NaN or infinity: the training had "
                                   "diverged; resume from an earlier checkpoint",
                                   reader.path(), name));
    }
  }
}

}  // namespace stagecraft
