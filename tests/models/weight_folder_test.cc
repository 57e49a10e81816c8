#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>

#include "models/weights/convert.h"
#include "models/weights/safetensors.h"
#include "models/weights/weight_source.h"
#include "partitioner/base/error.h"
#include "tests/models/scratch_folder.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  DType dtype = DType::kF32;
};
using Tensors = std::map<std::string, Tensor>;

Tensor filled(std::vector<int64_t> shape, float first, DType dtype = DType::kF32) {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  std::vector<float> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) values[i] = first + static_cast<float>(i);
  return {.shape = std::move(shape), .values = std::move(values), .dtype = dtype};
}

std::string encoded(const Tensor& tensor) {
  if (tensor.dtype == DType::kF32) {
    return {reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * 4};
  }
  std::vector<uint16_t> half(tensor.values.size());
  if (tensor.dtype == DType::kF16) float_to_half(tensor.values, half);
  if (tensor.dtype == DType::kBF16) {
    for (size_t i = 0; i < half.size(); ++i) {
      uint32_t bits;
      std::memcpy(&bits, &tensor.values[i], 4);
      half[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
  return {reinterpret_cast<const char*>(half.data()), half.size() * 2};
}

void save(const std::string& path, const Tensors& tensors) {
  std::vector<TensorInfo> infos;
  for (const auto& [name, t] : tensors) {
    infos.push_back({.name = name, .dtype = t.dtype, .shape = t.shape});
  }
  SafetensorsWriter writer(path, infos);
  for (const auto& [name, t] : tensors) {
    const std::string bytes = encoded(t);
    writer.write(name, std::as_bytes(std::span(bytes)));
  }
  writer.finish();
}

std::vector<float> values(const WeightSource& source, const Param& param) {
  std::vector<float> out(static_cast<size_t>(param.elements()), -1.0f);
  source.read(param, out);
  return out;
}

class DiffusersFolder : public ::testing::Test {
 protected:
  // The one line that opening, or reading everything, ends in.
  std::string refusal(const std::vector<Param>& expected, ExitCode code) {
    try {
      const auto source = open_diffusers_folder(folder_.path(), expected, 0);
      for (const auto& param : expected) values(*source, param);
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_THAT(error.what(), Not(HasSubstr("\n")));
      return error.what();
    }
    return "accepted";
  }
  std::unique_ptr<WeightSource> open(const std::vector<Param>& expected, uint64_t seed = 0) {
    return open_diffusers_folder(folder_.path(), expected, seed);
  }
  const std::string unet_ = "unet/diffusion_pytorch_model";
  const Param a_{.name = "unet.a.weight", .shape = {2, 3}};
  const Param b_{.name = "unet.b.bias", .shape = {4}};
  ScratchFolder folder_;
};

TEST_F(DiffusersFolder, ReadsSingleHalfAndBrainPrecision) {
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 1.5f, DType::kF16)},
                                            {"b.bias", filled({4}, -2.0f, DType::kBF16)},
                                            {"c", filled({1}, 0.1f)}});
  const Param c{.name = "unet.c", .shape = {1}};
  const auto source = open({a_, b_, c});
  EXPECT_EQ(values(*source, a_), (std::vector<float>{1.5, 2.5, 3.5, 4.5, 5.5, 6.5}));
  EXPECT_EQ(values(*source, b_), (std::vector<float>{-2, -1, 0, 1}));
  EXPECT_EQ(values(*source, c), (std::vector<float>{0.1f}));
}

TEST_F(DiffusersFolder, ReadsLargeHalfTensorsInPieces) {
  const Tensor large = filled({1000, 300}, 0.0f);
  Tensor half = large;
  half.dtype = DType::kF16;
  for (size_t i = 0; i < half.values.size(); ++i) {
    half.values[i] = static_cast<float>(i * 2654435761u % 2048);
  }
  save(folder_ / (unet_ + ".safetensors"), {{"a", half}});
  const Param a{.name = "unet.a", .shape = {1000, 300}};
  EXPECT_EQ(values(*open({a}), a), half.values);
}

TEST_F(DiffusersFolder, FullPrecisionGoesBeforeHalf) {
  save(folder_ / (unet_ + ".fp16.safetensors"), {{"a.weight", filled({2, 3}, 9, DType::kF16)}});
  EXPECT_EQ(values(*open({a_}), a_)[0], 9.0f);
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 1)}});
  EXPECT_EQ(values(*open({a_}), a_)[0], 1.0f);
}

TEST_F(DiffusersFolder, ReadsShardsThroughTheirIndex) {
  for (const std::string index : {".safetensors.index.json", ".safetensors.index.fp16.json"}) {
    fs::remove_all(folder_.path());
    save(folder_ / "unet/x-1.safetensors", {{"a.weight", filled({2, 3}, 1)}});
    save(folder_ / "unet/x-2.safetensors", {{"b.bias", filled({4}, 2)}});
    folder_.write(unet_ + index, R"({"metadata":{"total_size":40},"weight_map":
        {"a.weight":"x-1.safetensors","b.bias":"x-2.safetensors"}})");
    const auto source = open({a_, b_});
    EXPECT_EQ(values(*source, a_)[0], 1.0f);
    EXPECT_EQ(values(*source, b_)[0], 2.0f);
  }
}

TEST_F(DiffusersFolder, RefusesAnIndexThatIsNotOne) {
  save(folder_ / "unet/x.safetensors", {{"a.weight", filled({2, 3}, 1)}});
  save(folder_ / "unet/y.safetensors", {{"a.weight", filled({2, 3}, 1)}, {"b", filled({1}, 1)}});
  save(folder_ / "z.safetensors", {{"a.weight", filled({2, 3}, 1)}});
  const std::string index = unet_ + ".safetensors.index.json";
  const auto refused = [&](const std::string& text) {
    folder_.write(index, text);
    return refusal({a_}, ExitCode::kNoCheckpoint);
  };
  EXPECT_EQ(refused(R"({"weight_map":{"a.weight":"x.safetensors"}})"), "accepted");
  for (const std::string name : {"../z.safetensors", "/etc/passwd", "x.bin", "", ".safetensors",
                                 "a/x.safetensors", "x\\u0000.safetensors", "x .safetensors"}) {
    EXPECT_THAT(refused(R"({"weight_map":{"a.weight":")" + name + R"("}})"),
                HasSubstr("is not the name of a shard"))
        << name;
  }
  EXPECT_THAT(refused(R"({"weight_map":{"b.bias":"x.safetensors"}})"),
              HasSubstr("'b.bias' is not in x.safetensors"));
  EXPECT_THAT(refused(R"({"weight_map":{"a.weight":"y.safetensors"}})"),
              HasSubstr("y.safetensors holds 2 tensors, the index names 1"));
  EXPECT_THAT(refused(R"({"weight_map":{"a.weight":"x.safetensors","b":"y.safetensors"}})"),
              HasSubstr("tensor 'a.weight' is in "));
  EXPECT_THAT(refused(R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})"),
              HasSubstr("key 'a' occurs twice"));
  EXPECT_THAT(refused(R"({"weight_map":{"a":1}})"), HasSubstr("'a' is not a string"));
  EXPECT_THAT(refused(R"({"weight_map":[]})"), HasSubstr("no object 'weight_map'"));
  EXPECT_THAT(refused("{}"), HasSubstr("no object 'weight_map'"));
  EXPECT_THAT(refused("[]"), HasSubstr("no object 'weight_map'"));
  EXPECT_THAT(refused("{"), HasSubstr("syntax error"));
  EXPECT_THAT(refused("{\"a\":\"\xff\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refused(std::string(100, '[')), HasSubstr("nested deeper"));
}

TEST_F(DiffusersFolder, AMissingShardIsNamedWithItsIndex) {
  folder_.write(unet_ + ".safetensors.index.json", R"({"weight_map":{"a":"x.safetensors"}})");
  EXPECT_THAT(refusal({a_}, ExitCode::kNoCheckpoint),
              HasSubstr(".safetensors.index.json: names x.safetensors, which is not there"));
}

TEST_F(DiffusersFolder, AnIndexWithOneByteTooManyIsDamaged) {
  save(folder_ / "unet/x.safetensors", {{"a.weight", filled({2, 3}, 1)}});
  std::string text = R"({"weight_map":{"a.weight":"x.safetensors"}})";
  text.resize(size_t{4} << 20, ' ');
  folder_.write(unet_ + ".safetensors.index.json", text);
  EXPECT_EQ(refusal({a_}, ExitCode::kNoCheckpoint), "accepted");
  folder_.write(unet_ + ".safetensors.index.json", text + " ");
  EXPECT_THAT(refusal({a_}, ExitCode::kNoCheckpoint),
              HasSubstr("4194305 bytes, at most 4194304 are allowed"));
}

TEST_F(DiffusersFolder, ReadsTextEncodersOfOlderAndNewerTransformers) {
  const Param table{.name = "text_encoder.embeddings.token_embedding.weight", .shape = {3, 2}};
  const Param levelled{.name = "text_encoder.text_model.embeddings.token_embedding.weight",
                       .shape = {3, 2}};
  save(folder_ / "text_encoder/model.safetensors",
       {{"text_model.embeddings.token_embedding.weight", filled({3, 2}, 5)},
        {"text_model.embeddings.position_ids", filled({1, 2}, 0)}});
  EXPECT_EQ(values(*open({table}), table)[0], 5.0f);
  EXPECT_EQ(values(*open({levelled}), levelled)[0], 5.0f);
  save(folder_ / "text_encoder/model.safetensors",
       {{"embeddings.token_embedding.weight", filled({3, 2}, 6)}});
  EXPECT_EQ(values(*open({table}), table)[0], 6.0f);
  EXPECT_EQ(values(*open({levelled}), levelled)[0], 6.0f);
}

TEST_F(DiffusersFolder, ReadsVaeAttentionUnderItsOldNamesAndAsConvolution) {
  const std::string today = "vae.encoder.mid_block.attentions.0.";
  const std::string before = "encoder.mid_block.attentions.0.";
  const std::vector<Param> expected = {
      {.name = today + "to_q.weight", .shape = {2, 2}},
      {.name = today + "to_k.weight", .shape = {2, 2}},
      {.name = today + "to_v.weight", .shape = {2, 2}},
      {.name = today + "to_out.0.weight", .shape = {2, 2}},
      {.name = today + "to_out.0.bias", .shape = {2}},
  };
  for (const auto& shape : {std::vector<int64_t>{2, 2}, std::vector<int64_t>{2, 2, 1, 1}}) {
    save(folder_ / "vae/diffusion_pytorch_model.safetensors",
         {{before + "query.weight", filled(shape, 10)},
          {before + "key.weight", filled(shape, 20)},
          {before + "value.weight", filled(shape, 30)},
          {before + "proj_attn.weight", filled(shape, 40)},
          {before + "proj_attn.bias", filled({2}, 50)}});
    const auto source = open(expected);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(values(*source, expected[i])[0], 10.0f * static_cast<float>(i + 1));
    }
  }
}

TEST_F(DiffusersFolder, AConvolutionElsewhereIsNotALinearLayer) {
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3, 1, 1}, 1)}});
  EXPECT_THAT(refusal({a_}, ExitCode::kPlanMismatch),
              HasSubstr("1 of another shape: unet.a.weight [2, 3, 1, 1], the model has [2, 3]"));
}

TEST_F(DiffusersFolder, ListsWhatIsMissingUnexpectedAndMisshapenInOneLine) {
  Tensors stored = {{"a.weight", filled({3, 2}, 1)}};
  std::vector<Param> expected = {a_};
  for (int i = 0; i < 12; ++i) {
    stored.emplace("extra" + std::to_string(100 + i), filled({1}, 0));
    expected.push_back({.name = "unet.lost" + std::to_string(100 + i), .shape = {1}});
  }
  save(folder_ / (unet_ + ".safetensors"), stored);
  EXPECT_THAT(refusal(expected, ExitCode::kPlanMismatch),
              AllOf(HasSubstr("12 missing: unet.lost100, "), HasSubstr("unet.lost109, ..."),
                    Not(HasSubstr("lost110")), HasSubstr("12 unexpected: unet.extra100, "),
                    HasSubstr("unet.extra109, ..."), Not(HasSubstr("extra110")),
                    HasSubstr("unet.a.weight [3, 2], the model has [2, 3]")));
}

TEST_F(DiffusersFolder, AnEncoderAloneNeedsNoDecoder) {
  const Param conv{.name = "vae.encoder.conv_in.weight", .shape = {1}};
  save(folder_ / "vae/diffusion_pytorch_model.safetensors",
       {{"encoder.conv_in.weight", filled({1}, 1)}, {"decoder.conv_in.weight", filled({1}, 1)}});
  EXPECT_NO_THROW(open({conv}));
  save(folder_ / "vae/diffusion_pytorch_model.safetensors",
       {{"encoder.conv_in.weight", filled({1}, 1)}, {"encoder.other", filled({1}, 1)}});
  EXPECT_THAT(refusal({conv}, ExitCode::kPlanMismatch),
              HasSubstr("1 unexpected: vae.encoder.other"));
}

TEST_F(DiffusersFolder, PartsThatAreNotUsedAreNotOpened) {
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 1)}});
  folder_.write("vae/diffusion_pytorch_model.safetensors", "damaged");
  EXPECT_NO_THROW(open({a_}));
}

TEST_F(DiffusersFolder, RefusesNumbersThatAreNotFiniteUnlessAsked) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Tensor t = filled({2, 3}, 1, dtype);
      t.values[4] = bad;
      save(folder_ / (unet_ + ".safetensors"), {{"a.weight", t}});
      EXPECT_THAT(refusal({a_}, ExitCode::kNoCheckpoint),
                  HasSubstr("tensor 'a.weight' holds NaN or infinity"));
      const auto tolerant = open_diffusers_folder(folder_.path(), {a_}, 0, true);
      EXPECT_FALSE(std::isfinite(values(*tolerant, a_)[4]));
    }
  }
}

TEST_F(DiffusersFolder, IntegersAreNoWeights) {
  SafetensorsWriter writer(folder_ / (unet_ + ".safetensors"),
                           {{.name = "a.weight", .dtype = DType::kU8, .shape = {2, 3}}});
  writer.write("a.weight", std::as_bytes(std::span("123456", 6)));
  writer.finish();
  EXPECT_THAT(refusal({a_}, ExitCode::kPlanMismatch), HasSubstr("uint8"));
}

TEST_F(DiffusersFolder, PickledFilesAreNeverReadAndTheWayOutIsNamed) {
  folder_.write(unet_ + ".bin", "PK");
  EXPECT_THAT(refusal({a_}, ExitCode::kPlanMismatch),
              AllOf(HasSubstr("diffusion_pytorch_model.bin"), HasSubstr("save_pretrained")));
}

TEST_F(DiffusersFolder, AbsentFoldersAndEmptyOnesAreNamed) {
  EXPECT_THAT(refusal({a_}, ExitCode::kIo), HasSubstr("/unet: cannot open the folder"));
  fs::create_directory(folder_.path() + "/unet");
  EXPECT_THAT(refusal({a_}, ExitCode::kIo),
              HasSubstr("/unet: holds none of diffusion_pytorch_model.safetensors"));
}

TEST_F(DiffusersFolder, DamageIsNamedWithItsFile) {
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 1)}});
  fs::resize_file(folder_ / (unet_ + ".safetensors"), 40);
  EXPECT_THAT(refusal({a_}, ExitCode::kNoCheckpoint),
              HasSubstr("diffusion_pytorch_model.safetensors: byte 40: "));
}

TEST_F(DiffusersFolder, FollowsTheLinksOfADownloadCache) {
  save(folder_ / "blobs/0123", {{"a.weight", filled({2, 3}, 1)}});
  const std::string link = folder_ / (unet_ + ".safetensors");
  fs::create_symlink("../blobs/0123", link);
  EXPECT_EQ(values(*open({a_}), a_)[0], 1.0f);
}

TEST_F(DiffusersFolder, ReadsAGivenControlNet) {
  const Param zero{.name = "controlnet.controlnet_mid_block.bias", .shape = {2}};
  save(folder_ / "controlnet/diffusion_pytorch_model.safetensors",
       {{"controlnet_mid_block.bias", filled({2}, 3)}});
  EXPECT_EQ(values(*open({zero}), zero), (std::vector<float>{3, 4}));
}

class NewControlNet : public DiffusersFolder {
 protected:
  void SetUp() override {
    save(folder_ / (unet_ + ".safetensors"),
         {{"conv_in.weight", filled({4, 4, 3, 3}, 1)}, {"conv_out.weight", filled({1}, 9)}});
  }
  const Param copy_{.name = "controlnet.conv_in.weight", .shape = {4, 4, 3, 3}};
  const Param hint_{.name = "controlnet.controlnet_cond_embedding.blocks.0.weight",
                    .shape = {16, 4, 3, 3}};
  const Param hint_bias_{.name = "controlnet.controlnet_cond_embedding.blocks.0.bias",
                         .shape = {16}};
  const std::vector<Param> zeros_ = {
      {.name = "controlnet.controlnet_cond_embedding.conv_out.weight", .shape = {2, 2}},
      {.name = "controlnet.controlnet_cond_embedding.conv_out.bias", .shape = {2}},
      {.name = "controlnet.controlnet_down_blocks.11.weight", .shape = {2, 2, 1, 1}},
      {.name = "controlnet.controlnet_mid_block.bias", .shape = {2}},
  };
};

TEST_F(NewControlNet, CopiesTheUNet) {
  EXPECT_EQ(values(*open({copy_}), copy_), filled({4, 4, 3, 3}, 1).values);
}

TEST_F(NewControlNet, BeginsWithZeroConvolutions) {
  const auto source = open(zeros_);
  for (const auto& param : zeros_) {
    for (const float x : values(*source, param)) EXPECT_EQ(x, 0.0f);
  }
}

TEST_F(NewControlNet, HintEncoderBeginsAtRandomBySeed) {
  const std::vector<Param> expected = {hint_, hint_bias_};
  const auto source = open(expected, 7);
  const auto weight = values(*source, hint_), bias = values(*source, hint_bias_);
  const float bound = 1.0f / 6.0f;  // 36 inputs
  for (const auto* all : {&weight, &bias}) {
    for (const float x : *all) {
      EXPECT_LE(std::abs(x), bound);
      EXPECT_NE(x, 0.0f);
    }
  }
  EXPECT_GT(*std::max_element(weight.begin(), weight.end()), 0.95f * bound);
  EXPECT_EQ(weight, values(*open(expected, 7), hint_));
  EXPECT_NE(weight, values(*open(expected, 8), hint_));
}

TEST_F(NewControlNet, WhatTheUNetLacksIsMissing) {
  EXPECT_THAT(refusal({{.name = "controlnet.mid_block.x", .shape = {1}}}, ExitCode::kPlanMismatch),
              HasSubstr("1 missing: unet.mid_block.x"));
}

TEST_F(DiffusersFolder, IdentityFollowsContentAndNotPlace) {
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 1)}});
  const std::string original = open({a_})->identity("unet");
  const ScratchFolder other;
  fs::copy(folder_.path(), other.path(), fs::copy_options::recursive);
  EXPECT_EQ(open_diffusers_folder(other.path(), {a_}, 0)->identity("unet"), original);
  save(folder_ / (unet_ + ".safetensors"), {{"a.weight", filled({2, 3}, 2)}});
  EXPECT_NE(open({a_})->identity("unet"), original);
}

}  // namespace
}  // namespace stagecraft
