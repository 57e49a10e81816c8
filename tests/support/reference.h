// What diffusers and transformers compute (tests/python/make_reference.py), made once and shared by
// the tests.
//
// The folder lies in the build tree under a key of everything it depends on: the script, the model
// file, and the versions of the Python packages. Processes that want it at the same time wait for
// the first.
#pragma once

#include <ATen/ATen.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "models/torch/runner.h"
#include "models/weights/safetensors.h"
#include "partitioner/base/sha256.h"
#include "partitioner/graph/graph.h"
#include "tests/support/tiny_model.h"
#include "tests/support/whole_graph.h"

namespace stagecraft {

// Standard output and error of a shell command; throws, with them, when it fails.
inline std::string run_command(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::runtime_error("popen failed: " + command);
  std::string output;
  std::array<char, 4096> buffer;
  for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    output.append(buffer.data(), n);
  }
  const int status = pclose(pipe);
  if (status != 0) {
    throw std::runtime_error("failed (status " + std::to_string(status) + "): " + command + "\n" +
                             output);
  }
  return output;
}

// All tensors of a safetensors file.
inline TensorMap read_tensors(const std::string& path) {
  const SafetensorsReader reader(path);
  TensorMap tensors;
  for (const auto& [name, info] : reader.tensors()) {
    at::Tensor t = at::empty(info.shape, to_torch(info.dtype));
    reader.read(name, std::span(static_cast<std::byte*>(t.data_ptr()), t.nbytes()));
    tensors.emplace(name, std::move(t));
  }
  return tensors;
}

// The reference folder, made if need be.
inline std::filesystem::path reference_folder() {
  const std::string python = STAGECRAFT_PYTHON;
  const std::string script = STAGECRAFT_SOURCE_DIR "/tests/python/make_reference.py";
  const std::string versions =
      run_command(python +
                  " -c \"from importlib.metadata import version as v;"
                  " print(v('torch'), v('diffusers'), v('transformers'))\"");
  const std::string key =
      sha256_hex(sha256_hex_of_file(script) + sha256_hex_of_file(kTinyModelFile) + versions);
  const std::filesystem::path parent = STAGECRAFT_BIN_DIR "/../reference";
  std::filesystem::create_directories(parent);
  const std::filesystem::path folder = parent / key.substr(0, 16);

  const int lock = open((parent / "lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0 || flock(lock, LOCK_EX) != 0)
    throw std::runtime_error("no lock in " + parent.string());
  if (!std::filesystem::exists(folder)) {
    for (const auto& old : std::filesystem::directory_iterator(parent)) {
      if (old.is_directory()) std::filesystem::remove_all(old);
    }
    const std::string partial = folder.string() + ".partial";
    std::filesystem::create_directories(partial);
    run_command("'" + python + "' '" + script + "' '" + kTinyModelFile + "' '" + partial + "'");
    std::filesystem::rename(partial, folder);
  }
  close(lock);
  return folder;
}

// A file of the reference folder, by its name without the ending.
inline TensorMap reference(const std::string& name) {
  static const std::filesystem::path folder = reference_folder();
  return read_tensors((folder / (name + ".safetensors")).string());
}

inline constexpr double kOutputTolerance = 1e-5;

// Largest difference, relative to the largest value of the reference.
inline double distance(const at::Tensor& ours, const at::Tensor& theirs) {
  EXPECT_EQ(ours.sizes(), theirs.sizes());
  if (ours.sizes() != theirs.sizes()) return 1.0;
  return ((ours - theirs).abs().max() / theirs.abs().max()).item<double>();
}

// The reference weights of each block.
inline BlockTensors parameters(const BlockGraph& graph) {
  const TensorMap weights = reference("weights");
  BlockTensors result;
  for (const Block& block : graph.blocks) {
    result.emplace_back();
    for (const Param& param : block.params) result.back().push_back(weights.at(param.name));
  }
  return result;
}

}  // namespace stagecraft
