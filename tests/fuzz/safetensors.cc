// A weight file: header, offsets and the tensors themselves.
#include "models/weights/safetensors.h"

#include <vector>

#include "models/weights/safetensors_header.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

// Opens, reads all tensors and makes the header again.
void read_whole(const std::string& path) {
  const SafetensorsReader reader(path);
  std::vector<TensorInfo> tensors;
  int64_t bytes = 0;
  for (const auto& [name, info] : reader.tensors()) {
    tensors.push_back(info);
    std::vector<std::byte> content(static_cast<size_t>(info.bytes()));
    reader.read(name, content);
    bytes += info.bytes();
  }
  if (reader.header().size() > kMostReadBack) return;
  std::map<std::string, int64_t> offsets;
  const std::string text = make_safetensors_header(tensors, reader.metadata(), offsets);
  const auto again = parse_safetensors_header(std::string_view(text).substr(8), bytes, "again");
  require(again.metadata == reader.metadata(), "metadata read back as they were written");
  require(again.tensors.size() == tensors.size(), "tensors read back as they were written");
  for (const TensorInfo& info : tensors) {
    const auto& entry = again.tensors.at(info.name);
    require(entry.held == info.dtype && entry.shape == info.shape,
            "a tensor reads back as it was written");
  }
}

void fuzz_safetensors(std::string_view input) {
  try {
    read_whole(folder().write("x.safetensors", input));
  } catch (const InputError& error) {
    accept(error, {ExitCode::kNoCheckpoint});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(safetensors)
}  // namespace stagecraft::fuzz
