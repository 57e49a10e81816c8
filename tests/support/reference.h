// What diffusers and transformers compute (tests/python/make_reference.py), made once and shared by
// the tests.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>

#include "models/torch/runner.h"
#include "models/weights/safetensors.h"
#include "partitioner/graph/graph.h"
#include "tests/support/made_once.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"
#include "tests/support/tiny_model.h"
#include "tests/support/whole_graph.h"

namespace stagecraft {

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

// A file of the reference folder, by its name without the ending.
inline TensorMap reference(const std::string& name) {
  static const std::string folder = made_once("reference", [](const std::string& out) {
    must_run(python_command("tests/python/make_reference.py", {kTinyModelFile, out}));
  });
  return read_tensors(folder + "/" + name + ".safetensors");
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
