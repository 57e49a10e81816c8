// What verification must find: every flipped bit, every missing byte, everything that is no file.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "tests/checkpoint/made_checkpoint.h"
#include "tests/support/expect_error.h"
#include "tests/support/programs.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directory(root_);
    checkpoint_ = make_checkpoint(root_, 5);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(checkpoint_)) {
      paths.push_back(entry.path().string());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }
  static void put(const std::string& path, std::string_view content) {
    std::ofstream(path, std::ios::binary) << content;
  }
  // Whether it is refused, by name.
  bool found(const std::string& path) const {
    try {
      verify_checkpoint(checkpoint_);
    } catch (const InputError& error) {
      return error.code() == ExitCode::kNoCheckpoint &&
             std::string(error.what()).find(path) != std::string::npos;
    }
    return false;
  }
  void expect_found(const std::string& path, const char* what) const {
    const CaughtError error = caught([&] { verify_checkpoint(checkpoint_); });
    EXPECT_EQ(error.code, ExitCode::kNoCheckpoint);
    EXPECT_THAT(error.message, HasSubstr(path));
    EXPECT_THAT(error.message, HasSubstr(what));
  }

  TempFolder folder_;
  const std::string root_ = folder_.file("checkpoints");
  std::string checkpoint_;
};

TEST_F(CheckpointDamage, WhatIsWrittenReadsBackBitForBit) {
  expect_made_checkpoint(checkpoint_, 5);
}

TEST_F(CheckpointDamage, Each2000SingleBitFlipsAreFound) {
  std::mt19937_64 random(3);
  const auto paths = files();
  ASSERT_EQ(paths.size(), kMadeBlocks.size() + 1);
  for (int i = 0; i < 2000; ++i) {
    const std::string& path = paths[static_cast<size_t>(i) % paths.size()];
    const std::string whole = text_of(path);
    std::string damaged = whole;
    const size_t byte = random() % whole.size(), bit = random() % 8;
    damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
    put(path, damaged);
    EXPECT_TRUE(found(path)) << path << " byte " << byte << " bit " << bit;
    put(path, whole);
  }
  expect_made_checkpoint(checkpoint_, 5);
}

TEST_F(CheckpointDamage, EveryTruncationIsFound) {
  for (const std::string& path : files()) {
    const std::string whole = text_of(path);
    for (size_t size = 0; size < whole.size(); ++size) {
      put(path, std::string_view(whole).substr(0, size));
      ASSERT_TRUE(found(path)) << path << " cut to " << size << " bytes";
    }
    put(path, whole);
  }
  expect_made_checkpoint(checkpoint_, 5);
}

TEST_F(CheckpointDamage, AReaderChecksTheBytesAgain) {
  const CheckpointManifest manifest = verify_checkpoint(checkpoint_);
  const std::string path = checkpoint_ + "/" + manifest.files[0].name;
  std::string content = text_of(path);
  content.back() = static_cast<char>(content.back() ^ 1);  // after it was verified
  put(path, content);
  MadeBlock read = made_block(5, kMadeBlocks[0]);
  const CaughtError error = caught([&] {
    read_block_file(checkpoint_, manifest.files[0], tensors_of<float>(kMadeBlocks[0], read));
  });
  EXPECT_EQ(error.code, ExitCode::kNoCheckpoint);
  EXPECT_THAT(error.message, HasSubstr(path));
}

TEST_F(CheckpointDamage, NaNAndAnotherShapeAreRefused) {
  MadeBlock block = made_block(5, "net.a");
  MadeBlock other = made_block(5, "net.a", 100);
  block.moment[3] = std::numeric_limits<float>::quiet_NaN();
  const CheckpointFile file =
      write_block_file(checkpoint_, "nan.safetensors", tensors_of<const float>("net.a", block));
  const CaughtError nan =
      caught([&] { read_block_file(checkpoint_, file, tensors_of<float>("net.a", block)); });
  EXPECT_EQ(nan.code, ExitCode::kNoCheckpoint);
  EXPECT_THAT(nan.message, HasSubstr("'net.a.w.exp_avg' holds NaN"));
  const CaughtError shape =
      caught([&] { read_block_file(checkpoint_, file, tensors_of<float>("net.a", other)); });
  EXPECT_EQ(shape.code, ExitCode::kPlanMismatch);
}

TEST_F(CheckpointDamage, AMissingAnExtraAndAReplacedFileAreNamed) {
  const std::string path = checkpoint_ + "/net.b.safetensors", whole = text_of(path);
  fs::rename(path, folder_.file("elsewhere"));
  expect_found(path, "is missing");
  fs::create_symlink(folder_.file("elsewhere"), path);
  expect_found(path, "is no regular file");
  fs::remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  expect_found(path, "is no regular file");
  fs::remove(path);
  fs::create_directory(path);
  expect_found(path, "is no regular file");
  fs::remove(path);
  put(path, whole);
  put(checkpoint_ + "/another.safetensors", whole);
  expect_found("another.safetensors", "is not in the manifest");
  fs::remove(checkpoint_ + "/another.safetensors");
  expect_made_checkpoint(checkpoint_, 5);
  fs::remove(checkpoint_ + "/manifest.json");
  expect_found("manifest.json", "is missing");
}

}  // namespace
}  // namespace stagecraft
