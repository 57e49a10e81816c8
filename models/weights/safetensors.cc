#include "models/weights/safetensors.h"

#include <fmt/format.h>

#include <array>

#include "models/weights/files.h"
#include "models/weights/safetensors_header.h"
#include "partitioner/base/error.h"

namespace stagecraft {

struct SafetensorsReader::Impl {
  explicit Impl(const std::string& path) : file(path) {}
  InputFile file;
  std::string header;
  std::map<std::string, TensorInfo> tensors;
  std::map<std::string, std::string> unreadable;
  std::map<std::string, std::string> metadata;
  std::map<std::string, int64_t> offsets;  // of a tensor's first byte in the file
};

SafetensorsReader::SafetensorsReader(const std::string& path)
    : impl_(std::make_unique<Impl>(path)) {
  const int64_t size = impl_->file.size();
  const auto fail = [&](const std::string& what) {
    throw InputError(ExitCode::kNoCheckpoint, fmt::format("{}: {}", path, what));
  };
  if (size < 8) fail(fmt::format("byte {}: the file ends inside the header's length", size));
  std::array<unsigned char, 8> raw{};
  impl_->file.read(0, std::as_writable_bytes(std::span(raw)));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | raw[static_cast<size_t>(i)];
  if (length > static_cast<uint64_t>(kMaxSafetensorsHeader)) {
    fail(fmt::format("byte 0: a header of {} bytes; at most {} are read", length,
                     kMaxSafetensorsHeader));
  }
  const int64_t data_begin = 8 + static_cast<int64_t>(length);
  if (data_begin > size) {
    fail(fmt::format("byte {}: the file ends inside its header of {} bytes", size, length));
  }
  impl_->header.resize(static_cast<size_t>(length));
  impl_->file.read(8, std::as_writable_bytes(std::span(impl_->header)));
  SafetensorsHeader header = parse_safetensors_header(impl_->header, size - data_begin, path);
  impl_->metadata = std::move(header.metadata);
  for (auto& [name, entry] : header.tensors) {
    if (!entry.held) {
      impl_->unreadable.emplace(name, entry.dtype);
      continue;
    }
    impl_->offsets.emplace(name, data_begin + entry.begin);
    impl_->tensors.emplace(
        name, TensorInfo{.name = name, .dtype = *entry.held, .shape = std::move(entry.shape)});
  }
}

SafetensorsReader::~SafetensorsReader() = default;
SafetensorsReader::SafetensorsReader(SafetensorsReader&&) noexcept = default;
SafetensorsReader& SafetensorsReader::operator=(SafetensorsReader&&) noexcept = default;

const std::string& SafetensorsReader::path() const { return impl_->file.path(); }
const std::string& SafetensorsReader::header() const { return impl_->header; }
const std::map<std::string, TensorInfo>& SafetensorsReader::tensors() const {
  return impl_->tensors;
}
const std::map<std::string, std::string>& SafetensorsReader::unreadable() const {
  return impl_->unreadable;
}
const std::map<std::string, std::string>& SafetensorsReader::metadata() const {
  return impl_->metadata;
}

void SafetensorsReader::read(const std::string& name, std::span<std::byte> out) const {
  const auto found = impl_->tensors.find(name);
  if (found != impl_->tensors.end() && found->second.bytes() != static_cast<int64_t>(out.size())) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: tensor '{}' has {} bytes, {} expected", path(), name,
                                 found->second.bytes(), out.size()));
  }
  read_part(name, 0, out);
}

void SafetensorsReader::read_part(const std::string& name, int64_t offset,
                                  std::span<std::byte> out) const {
  const auto found = impl_->tensors.find(name);
  if (found == impl_->tensors.end()) {
    const auto other = impl_->unreadable.find(name);
    throw InputError(
        ExitCode::kPlanMismatch,
        other == impl_->unreadable.end()
            ? fmt::format("{}: no tensor '{}'", path(), name)
            : fmt::format("{}: tensor '{}' has dtype {}; convert it to F32, F16 or BF16", path(),
                          name, other->second));
  }
  const int64_t bytes = found->second.bytes();
  if (offset < 0 || offset > bytes || static_cast<int64_t>(out.size()) > bytes - offset) {
    throw InputError(ExitCode::kPlanMismatch,
                     fmt::format("{}: tensor '{}' has {} bytes, {} expected at {}", path(), name,
                                 bytes, out.size(), offset));
  }
  impl_->file.read(impl_->offsets.at(name) + offset, out);
}

struct SafetensorsWriter::Impl {
  explicit Impl(const std::string& path) : file(path) {}
  OutputFile file;
  std::string header;
  std::map<std::string, int64_t> offsets;
  std::map<std::string, int64_t> missing;  // name to bytes, of tensors not yet written
};

SafetensorsWriter::SafetensorsWriter(const std::string& path,
                                     const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::map<std::string, int64_t> offsets;
  std::string header = make_safetensors_header(tensors, metadata, offsets);
  impl_ = std::make_unique<Impl>(path);
  impl_->header = std::move(header);
  impl_->offsets = std::move(offsets);
  for (const auto& tensor : tensors) impl_->missing.emplace(tensor.name, tensor.bytes());
  impl_->file.write(0, std::as_bytes(std::span(impl_->header)));
}

SafetensorsWriter::~SafetensorsWriter() = default;

const std::string& SafetensorsWriter::header() const { return impl_->header; }

void SafetensorsWriter::write(const std::string& name, std::span<const std::byte> data) {
  const auto found = impl_->missing.find(name);
  if (found == impl_->missing.end() || found->second != static_cast<int64_t>(data.size())) {
    throw InternalError(
        fmt::format("{}: tensor '{}' of {} bytes is unknown, of another size or "
                    "written twice",
                    impl_->file.path(), name, data.size()));
  }
  impl_->file.write(impl_->offsets.at(name), data);
  impl_->missing.erase(found);
}

void SafetensorsWriter::finish() {
  if (!impl_->missing.empty()) {
    throw InternalError(fmt::format("{}: {} tensors were never written, '{}' first",
                                    impl_->file.path(), impl_->missing.size(),
                                    impl_->missing.begin()->first));
  }
  impl_->file.commit();
}

}  // namespace stagecraft
