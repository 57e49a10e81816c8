// The generators of data sets write what the reader accepts, the same for the same seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "partitioner/base/files.h"
#include "pipeline/data/picture_check.h"
#include "pipeline/dataset/dataset.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Runs tools/<script> and returns its exit status.
int make(const std::string& script, const std::string& out, const std::string& flags) {
  const std::string command = std::string(STAGECRAFT_PYTHON) + " " + STAGECRAFT_SOURCE_DIR +
                              "/tools/" + script + " " + out + " " + flags + " > /dev/null 2>&1";
  return std::system(command.c_str());
}

void expect_good(const Dataset& dataset, int64_t width, int64_t height) {
  DataFaults faults = dataset.faults;
  const std::map<std::string, PictureFacts> none;
  const auto pictures = check_pictures(
      {.dataset = dataset, .known = none, .width = width, .height = height, .progress = {}},
      faults);
  EXPECT_EQ(faults.text(), "");
  for (const auto& [path, facts] : pictures) {
    EXPECT_EQ(facts.width, width) << path;
    EXPECT_EQ(facts.height, height) << path;
  }
}

TEST(MakeFill50k, WritesCirclesThatDependOnSeedAndNumberOnly) {
  const TempFolder folder;
  ASSERT_EQ(make("make_fill50k.py", folder.file("a"), "--count 3 --size 64x96"), 0);
  ASSERT_EQ(make("make_fill50k.py", folder.file("b"), "--count 2 --size 64x96"), 0);
  ASSERT_EQ(make("make_fill50k.py", folder.file("c"), "--count 2 --size 64x96 --seed 7"), 0);
  const Dataset dataset = read_dataset(folder.file("a"));
  ASSERT_EQ(dataset.samples.size(), 3u);
  expect_good(dataset, 64, 96);
  EXPECT_THAT(dataset.samples[0].caption,
              ContainsRegex("^[a-z ]+ circle with [a-z ]+ background$"));
  const auto file = [&](const std::string& name) { return read_file(folder.file(name), 1 << 20); };
  EXPECT_EQ(file("a/target/000001.png"), file("b/target/000001.png"));
  EXPECT_NE(file("a/target/000001.png"), file("c/target/000001.png"));
  EXPECT_NE(file("a/target/000000.png"), file("a/target/000001.png"));
}

TEST(MakeFill50k, LeavesAFolderWithContentAlone) {
  const TempFolder folder;
  folder.write("a/mine.txt", "keep");
  EXPECT_NE(make("make_fill50k.py", folder.file("a"), "--count 1 --size 64"), 0);
  EXPECT_EQ(read_file(folder.file("a/mine.txt"), 100), "keep");
}

TEST(MakePhotos, WritesCropsOfTheShippedPhotographs) {
  const TempFolder folder;
  ASSERT_EQ(make("make_photos.py", folder.file("a"), "--crops 1 --size 64x96"), 0);
  const Dataset dataset = read_dataset(folder.file("a"));
  ASSERT_EQ(dataset.samples.size(), 10u);
  expect_good(dataset, 64, 96);
  EXPECT_THAT(dataset.samples[0].caption, HasSubstr("a photograph of an astronaut"));
}

}  // namespace
}  // namespace stagecraft
