// Weight folders exchanged with diffusers and transformers, both ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include "models/network/build.h"
#include "models/weights/convert.h"
#include "models/weights/save_folder.h"
#include "models/weights/weight_source.h"
#include "tests/models/scratch_folder.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"

namespace stagecraft {
namespace {

struct Dump {
  std::vector<Param> params;  // names behind their part
  std::string raw;
};

Dump read_dump(const std::string& path, const std::string& part) {
  Dump dump;
  std::ifstream table(path + ".txt");
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    Param param;
    words >> param.name;
    param.name = part + "." + param.name;
    for (int64_t d; words >> d;) param.shape.push_back(d);
    dump.params.push_back(param);
  }
  std::ifstream raw(path + ".raw", std::ios::binary);
  dump.raw.assign(std::istreambuf_iterator<char>(raw), {});
  EXPECT_FALSE(dump.params.empty()) << path;
  return dump;
}

std::vector<float> values(const WeightSource& source, const Param& param) {
  std::vector<float> out(static_cast<size_t>(param.elements()));
  source.read(param, out);
  return out;
}

std::string raw_values(const WeightSource& source, const std::vector<Param>& params) {
  std::string raw;
  for (const Param& param : params) {
    const auto x = values(source, param);
    raw.append(reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float));
  }
  return raw;
}

// One Python process does everything: importing diffusers takes most of its time.
class WeightFolders : public testing::Test {
 protected:
  static ModelConfig tiny() {
    ModelConfig model;
    model.unet = {.block_out_channels = {32, 64},
                  .down_attention = {true, false},
                  .layers_per_block = 1,
                  .num_heads = 2,
                  .cross_attention_dim = 32,
                  .norm_num_groups = 8};
    return model;
  }
  static std::vector<Param> params_of(const std::string& part) {
    std::vector<Param> params;
    for (const Block& block : build_training_graph(tiny(), 64, 128, {}).blocks) {
      if (block.part == part) params.insert(params.end(), block.params.begin(), block.params.end());
    }
    std::sort(params.begin(), params.end(),
              [](const Param& a, const Param& b) { return a.name < b.name; });
    return params;
  }

  void save(const std::string& part, DType dtype) {
    const auto params = params_of(part);
    const std::string path = folder_ / (part + (dtype == DType::kF16 ? "_half" : ""));
    FolderWriter writer({.folder = path, .part = part, .dtype = dtype}, tiny(), params);
    for (auto param = params.rbegin(); param != params.rend(); ++param) {
      writer.write(*param, values(*random_, *param));
    }
    writer.finish();
  }

  // from_pretrained found what we saved, under the same names.
  void expect_loaded(const std::string& part) {
    const Dump loaded = read_dump(folder_ / part, part);
    EXPECT_EQ(loaded.params, params_of(part));
    EXPECT_TRUE(raw_values(*random_, loaded.params) == loaded.raw) << part;
    const Dump half = read_dump(folder_ / (part + "_half"), part);
    ASSERT_EQ(half.raw.size(), loaded.raw.size());
    std::vector<float> full(half.raw.size() / 4), rounded(full.size());
    std::memcpy(full.data(), loaded.raw.data(), loaded.raw.size());
    std::memcpy(rounded.data(), half.raw.data(), half.raw.size());
    std::vector<uint16_t> ours(full.size());
    float_to_half(full, ours);
    half_to_float(ours, full);
    EXPECT_EQ(full, rounded) << part;
  }

  // We find what save_pretrained wrote.
  void expect_read(const std::string& layout, const std::string& dump_prefix = "") {
    const std::vector<std::string> parts = {"unet", "controlnet", "vae", "text_encoder"};
    std::vector<Param> expected;
    std::vector<Dump> dumps;
    for (const auto& part : parts) {
      dumps.push_back(read_dump(folder_ / ("theirs/" + dump_prefix + part), part));
      expected.insert(expected.end(), dumps.back().params.begin(), dumps.back().params.end());
    }
    const auto source = open_diffusers_folder(folder_ / ("theirs/" + layout), expected, 0);
    for (size_t i = 0; i < parts.size(); ++i) {
      EXPECT_TRUE(raw_values(*source, dumps[i].params) == dumps[i].raw) << layout << parts[i];
    }
  }

  // A ControlNet that is not there begins as from_unet does.
  void expect_copies_of_unet() {
    const Dump unet = read_dump(folder_ / "theirs/unet", "unet");
    const Dump controlnet = read_dump(folder_ / "theirs/controlnet", "controlnet");
    std::filesystem::create_directory_symlink("../theirs/plain/unet", folder_ / "alone/unet");
    const auto source = open_diffusers_folder(folder_ / "alone", controlnet.params, 5);
    const auto from_unet = open_diffusers_folder(folder_ / "alone", unet.params, 5);
    size_t copies = 0;
    for (const Param& param : controlnet.params) {
      Param twin{.name = "unet" + param.name.substr(param.name.find('.')), .shape = param.shape};
      if (std::find(unet.params.begin(), unet.params.end(), twin) == unet.params.end()) continue;
      EXPECT_EQ(values(*source, param), values(*from_unet, twin)) << param.name;
      ++copies;
    }
    // Hint encoder 16, four zero convolutions and the middle one 10: all others have a twin.
    EXPECT_EQ(copies, controlnet.params.size() - 26);
  }

  ScratchFolder folder_;
  std::unique_ptr<WeightSource> random_ = random_weights(3);
};

TEST_F(WeightFolders, AreExchangedWithDiffusersInBothDirectionsAndEveryLayout) {
  for (const std::string part : {"controlnet", "unet"}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) save(part, dtype);
  }
  must_run(python_command("tests/models_torch/saved_folder.py", {folder_.path()}));
  expect_loaded("controlnet");
  expect_loaded("unet");
  for (const std::string layout : {"plain", "half", "shards", "half_shards", "older"}) {
    expect_read(layout);
  }
  expect_read("brain", "brain_");
  expect_copies_of_unet();
}

}  // namespace
}  // namespace stagecraft
