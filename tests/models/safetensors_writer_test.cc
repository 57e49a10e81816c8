#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

#include "models/weights/safetensors.h"
#include "partitioner/base/error.h"
#include "tests/models/scratch_folder.h"

namespace stagecraft {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TensorInfo bytes_tensor(const std::string& name, int64_t size) {
  return {.name = name, .dtype = DType::kU8, .shape = {size}};
}

TEST(SafetensorsWriter, WhatIsWrittenIsReadAgain) {
  const ScratchFolder folder;
  const std::vector<TensorInfo> tensors = {
      {.name = "u8", .dtype = DType::kU8, .shape = {3}},
      {.name = "half", .dtype = DType::kF16, .shape = {1, 1}},
      {.name = "brain", .dtype = DType::kBF16, .shape = {}},
      {.name = "ids", .dtype = DType::kI64, .shape = {1}},
      {.name = "single \"quoted\" \xc3\xa9", .dtype = DType::kF32, .shape = {1}},
      {.name = "empty", .dtype = DType::kF32, .shape = {0, 7}},
  };
  const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"step", "12"}};
  SafetensorsWriter writer(folder / "x.safetensors", tensors, metadata);
  std::map<std::string, std::string> content;
  for (const auto& tensor : tensors) {
    content[tensor.name] = std::string(static_cast<size_t>(tensor.bytes()), tensor.name[0]);
    writer.write(tensor.name, bytes_of(content[tensor.name]));
  }
  writer.finish();
  const SafetensorsReader reader(folder / "x.safetensors");
  EXPECT_EQ(reader.metadata(), metadata);
  ASSERT_EQ(reader.tensors().size(), tensors.size());
  for (const auto& tensor : tensors) {
    EXPECT_EQ(reader.tensors().at(tensor.name), tensor);
    std::string out(content[tensor.name].size(), ' ');
    reader.read(tensor.name, std::as_writable_bytes(std::span(out)));
    EXPECT_EQ(out, content[tensor.name]);
  }
}

TEST(SafetensorsWriter, DataBeginsAtAMultipleOfEight) {
  const ScratchFolder folder;
  for (size_t n = 1; n <= 9; ++n) {
    SafetensorsWriter writer(folder / "x", {bytes_tensor(std::string(n, 'n'), 1)});
    writer.write(std::string(n, 'n'), bytes_of("x"));
    writer.finish();
    EXPECT_EQ(std::filesystem::file_size(folder / "x") % 8, 1u);
  }
}

TEST(SafetensorsWriter, NothingIsLeftWithoutFinish) {
  const ScratchFolder folder;
  folder.write("x", "old");
  {
    SafetensorsWriter writer(folder / "x", {bytes_tensor("a", 1)});
    writer.write("a", bytes_of("1"));
    EXPECT_TRUE(std::filesystem::exists(folder / "x.partial"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "x.partial"));
  EXPECT_EQ(file_content(folder / "x"), "old");
}

TEST(SafetensorsWriter, FinishReplacesTheOldFileAndALeftOver) {
  const ScratchFolder folder;
  folder.write("x", "old");
  folder.write("x.partial", "of a run that was killed");
  SafetensorsWriter writer(folder / "x", {bytes_tensor("a", 1)});
  writer.write("a", bytes_of("1"));
  writer.finish();
  EXPECT_FALSE(std::filesystem::exists(folder / "x.partial"));
  EXPECT_EQ(SafetensorsReader(folder / "x").tensors().size(), 1u);
}

TEST(SafetensorsWriter, DoesNotFollowALinkInPlaceOfTheTemporaryFile) {
  const ScratchFolder folder;
  folder.write("victim", "untouched");
  std::filesystem::create_symlink(folder / "victim", folder / "x.partial");
  SafetensorsWriter writer(folder / "x", {bytes_tensor("a", 1)});
  writer.write("a", bytes_of("1"));
  writer.finish();
  EXPECT_EQ(file_content(folder / "victim"), "untouched");
}

TEST(SafetensorsWriter, EachTensorIsWrittenOnceAndWhole) {
  const ScratchFolder folder;
  SafetensorsWriter writer(folder / "x", {bytes_tensor("a", 2), bytes_tensor("b", 1)});
  EXPECT_THROW(writer.write("c", bytes_of("1")), InternalError);
  EXPECT_THROW(writer.write("a", bytes_of("1")), InternalError);
  writer.write("a", bytes_of("12"));
  EXPECT_THROW(writer.write("a", bytes_of("12")), InternalError);
  EXPECT_THROW(writer.finish(), InternalError);
}

TEST(SafetensorsWriter, RefusesNamesItCouldNotReadAgain) {
  const ScratchFolder folder;
  for (const std::string name : {"", "__metadata__", "../x", "a\nb", "\xff"}) {
    EXPECT_THROW(SafetensorsWriter(folder / "x", {bytes_tensor(name, 1)}), InternalError) << name;
  }
  EXPECT_THROW(SafetensorsWriter(folder / "x", {bytes_tensor("a", 1), bytes_tensor("a", 2)}),
               InternalError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// The kernel refuses bytes behind the limit as it does on a full disk: a short write, then an
// error.
TEST(SafetensorsWriter, AFullDiskIsAnIoErrorAndLeavesNothing) {
  const ScratchFolder folder;
  struct rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {.rlim_cur = 4096, .rlim_max = old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::string message;
  try {
    SafetensorsWriter writer(folder / "x", {bytes_tensor("a", 10000)});
    writer.write("a", bytes_of(std::string(10000, 'a')));
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  EXPECT_THAT(message, ::testing::HasSubstr("x.partial: cannot write"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, AMissingFolderIsAnIoError) {
  try {
    SafetensorsWriter writer("/nonexistent/folder/x", {});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
  }
}

}  // namespace
}  // namespace stagecraft
