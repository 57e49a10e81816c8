#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <limits>

#include "models/weights/save_folder.h"
#include "partitioner/base/error.h"
#include "tests/models/scratch_folder.h"

namespace stagecraft {
namespace {

const Param kParamA{.name = "controlnet.a", .shape = {2}};
const Param kParamB{.name = "controlnet.b", .shape = {1}};

SaveFolderOptions options(const ScratchFolder& folder, DType dtype = DType::kF32) {
  return {.folder = folder.path() + "/controlnet", .part = "controlnet", .dtype = dtype};
}

TEST(SaveFolder, WritesTensorsWithoutTheirPart) {
  const ScratchFolder folder;
  FolderWriter writer(options(folder), {}, {kParamA, kParamB});
  writer.write(kParamB, std::vector<float>{3});
  writer.write(kParamA, std::vector<float>{1, 2});
  writer.finish();
  const SafetensorsReader reader(folder / "controlnet/diffusion_pytorch_model.safetensors");
  std::vector<float> a(2);
  reader.read("a", std::as_writable_bytes(std::span(a)));
  EXPECT_EQ(a, (std::vector<float>{1, 2}));
  EXPECT_EQ(file_content(folder / "controlnet/config.json"), diffusers_config({}, "controlnet"));
}

TEST(SaveFolder, NothingIsThereBeforeFinish) {
  const ScratchFolder folder;
  {
    FolderWriter writer(options(folder), {}, {kParamA});
    EXPECT_THROW(writer.finish(), InternalError);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "controlnet/diffusion_pytorch_model.safetensors"));
  EXPECT_FALSE(
      std::filesystem::exists(folder / "controlnet/diffusion_pytorch_model.safetensors.partial"));
}

TEST(SaveFolder, RefusesNumbersThatTheFileCannotHold) {
  const ScratchFolder folder;
  FolderWriter full(options(folder), {}, {kParamA});
  FolderWriter half(options(folder, DType::kF16), {}, {kParamA});
  const std::vector<float> infinite = {1, std::numeric_limits<float>::infinity()};
  const std::vector<float> large = {1, 65520};
  EXPECT_THROW(full.write(kParamA, infinite), InputError);
  EXPECT_NO_THROW(full.write(kParamA, large));
  EXPECT_THROW(half.write(kParamA, large), InputError);
}

TEST(SaveFolder, RefusesParametersOfAnotherPart) {
  const ScratchFolder folder;
  EXPECT_THROW(FolderWriter(options(folder), {}, {{.name = "unet.a", .shape = {1}}}),
               InternalError);
}

TEST(SaveFolder, NamesTheLevelsOfTheUNetInItsConfiguration) {
  ModelConfig model;
  EXPECT_THAT(diffusers_config(model, "unet"),
              ::testing::HasSubstr("\"up_block_types\": [\n    \"UpBlock2D\",\n    \"CrossAttnUp"));
  EXPECT_THAT(diffusers_config(model, "controlnet"),
              ::testing::HasSubstr("\"attention_head_dim\": 8,"));
}

}  // namespace
}  // namespace stagecraft
