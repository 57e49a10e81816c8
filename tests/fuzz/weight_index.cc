// The index of sharded weights: it names files. Two shards are there, with the tensors a, b and c.
#include <vector>

#include "models/weights/part_files.h"
#include "tests/fuzz/target.h"

namespace stagecraft::fuzz {
namespace {

void make_shards() {
  const std::vector<std::byte> data(8);
  const auto write = [&](const char* file, const std::vector<std::string>& names) {
    std::vector<TensorInfo> tensors;
    for (const std::string& name : names) tensors.push_back({.name = name, .shape = {2}});
    SafetensorsWriter writer(folder().file(file), tensors);
    for (const std::string& name : names) writer.write(name, data);
    writer.finish();
  };
  write("model-00001-of-00002.safetensors", {"a", "b"});
  write("model-00002-of-00002.safetensors", {"c"});
}

void fuzz_weight_index(std::string_view input) {
  static const bool made = (make_shards(), true);
  static_cast<void>(made);
  folder().write("model.safetensors.index.json", input);
  try {
    const PartFiles files(folder().path().string(), "model");
    for (const auto& [name, info] : files.tensors()) {
      std::vector<float> values(2);
      files.read(name, values);
    }
    require(!files.identity().empty(), "weights have an identity");
  } catch (const InputError& error) {
    accept(error, {ExitCode::kNoCheckpoint});
  }
}

}  // namespace
STAGECRAFT_FUZZ_TARGET(weight_index)
}  // namespace stagecraft::fuzz
