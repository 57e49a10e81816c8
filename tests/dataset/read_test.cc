// prompt.json: every fault is named with its line, all at once, and nothing outside the folder is
// touched.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "partitioner/base/error.h"
#include "pipeline/dataset/dataset.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGood = R"({"source": "a.png", "target": "b.png", "prompt": "a cat"})";

std::string line_with_caption(const std::string& caption) {
  return R"({"source": "a.png", "target": "b.png", "prompt": ")" + caption + "\"}";
}

// Faults of a prompt.json with this content.
std::string faults_of(const std::string& content) {
  TempFolder folder;
  folder.write("prompt.json", content);
  return read_dataset(folder.path().string()).faults.text();
}

TEST(ReadDataset, GivesSamplesInOrderWithTheirLines) {
  TempFolder folder;
  folder.write("prompt.json",
               std::string(kGood) + "\n\n" +
                   R"({"prompt": "", "target": "t/1.png", "source": "s/1.png", "id": 7})");
  const Dataset dataset = read_dataset(folder.path().string());
  EXPECT_TRUE(dataset.faults.empty());
  ASSERT_EQ(dataset.samples.size(), 2u);
  EXPECT_EQ(dataset.samples[0].caption, "a cat");
  EXPECT_EQ(dataset.samples[1].line, 3);
  EXPECT_EQ(dataset.samples[1].source, "s/1.png");
  EXPECT_EQ(dataset.samples[1].target, "t/1.png");
  EXPECT_EQ(dataset.samples[1].caption, "");
}

TEST(ReadDataset, OneByteTooManyIsInvalidData) {
  TempFolder folder;
  const std::string path = folder.write("prompt.json", kGood);
  std::filesystem::resize_file(path, (size_t{1} << 30) + 1);
  EXPECT_THAT(data_fault([&] { read_dataset(folder.path().string()); }),
              HasSubstr("1073741825 bytes, at most 1073741824 are allowed"));
}

TEST(ReadDataset, AcceptsByteOrderMarkAndWindowsLineEnds) {
  TempFolder folder;
  folder.write("prompt.json", "\xEF\xBB\xBF" + std::string(kGood) + "\r\n" + kGood + "\r\n");
  const Dataset dataset = read_dataset(folder.path().string());
  EXPECT_TRUE(dataset.faults.empty());
  EXPECT_EQ(dataset.samples.size(), 2u);
}

TEST(ReadDataset, NamesAllFaultsAtOnceWithTheirLines) {
  TempFolder folder;
  folder.write("prompt.json", std::string(kGood) + "\n{\"source\": \n" +
                                  R"({"source": "a", "target": "b"})" + "\n" + kGood + "\n[1]\n");
  const Dataset dataset = read_dataset(folder.path().string());
  EXPECT_EQ(dataset.samples.size(), 2u);
  const std::string index = folder.file("prompt.json");
  EXPECT_THAT(dataset.faults.text(), AllOf(HasSubstr(index + ":2: not a JSON object"),
                                           HasSubstr(index + ":3: key \"prompt\" is missing"),
                                           HasSubstr(index + ":5: not a JSON object"),
                                           Not(HasSubstr(":1:")), Not(HasSubstr(":4:"))));
  EXPECT_THAT(data_fault([&] { require_valid(dataset, 1); }), HasSubstr(":5: "));
}

TEST(ReadDataset, RefusesWrongTypes) {
  EXPECT_THAT(faults_of(R"({"source": "a", "target": 5, "prompt": "c"})"),
              HasSubstr("\"target\" is number, not a text"));
}

TEST(ReadDataset, RefusesAKeyThatIsThereTwice) {
  EXPECT_THAT(faults_of(R"({"source": "a", "target": "b", "prompt": "c", "prompt": "d"})"),
              HasSubstr("key 'prompt' occurs twice"));
}

TEST(ReadDataset, RefusesCaptionsThatAreNotUtf8) {
  EXPECT_THAT(faults_of(line_with_caption("caf\xE9 latin")), HasSubstr(":1: not UTF-8 at byte 54"));
  EXPECT_THAT(faults_of(line_with_caption("\\ud800")), HasSubstr(":1: not a JSON object"));
}

TEST(ReadDataset, RefusesACaptionThatIsTooLong) {
  EXPECT_EQ(faults_of(line_with_caption(std::string(16 * 1024, 'x'))), "");
  EXPECT_THAT(faults_of(line_with_caption(std::string(16 * 1024 + 1, 'x'))),
              HasSubstr("\"prompt\" has 16385 bytes"));
  EXPECT_THAT(faults_of(line_with_caption(std::string(10 << 20, 'x'))),
              HasSubstr("line of more than 1048576 bytes"));
}

TEST(ReadDataset, RefusesPathsThatLeaveTheFolder) {
  for (const char* path : {"../x.png", "a/../../x.png", "/etc/passwd", "", "a\\u0000b"}) {
    EXPECT_THAT(faults_of(R"({"source": "a.png", "target": ")" + std::string(path) +
                          R"(", "prompt": "c"})"),
                HasSubstr("not a path inside the folder"))
        << path;
  }
}

TEST(ReadDataset, KeepsControlCharactersOfAPathOffTheScreen) {
  EXPECT_THAT(faults_of(R"({"source": "../\n\u001b[31m", "target": "t", "prompt": "c"})"),
              HasSubstr("../??[31m"));
}

TEST(ReadDataset, RefusesDeepNesting) {
  EXPECT_THAT(faults_of("{\"x\": " + std::string(100000, '[')), HasSubstr(":1: nested deeper"));
}

TEST(ReadDataset, ExplainsAJsonArray) {
  EXPECT_THAT(faults_of("[\n" + std::string(kGood) + "\n]"),
              HasSubstr(":1: one JSON array; write one object a line"));
}

TEST(ReadDataset, RefusesAMissingFolderAndAMissingIndex) {
  TempFolder folder;
  EXPECT_THAT(data_fault([&] { read_dataset(folder.file("nothing")); }),
              HasSubstr("nothing: No such file"));
  EXPECT_THAT(data_fault([&] { read_dataset(folder.path().string()); }), HasSubstr("prompt.json"));
}

TEST(ReadDataset, RefusesAPipeInPlaceOfTheIndexWithoutWaiting) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("prompt.json").c_str(), 0600), 0);
  EXPECT_THAT(data_fault([&] { read_dataset(folder.path().string()); }), HasSubstr("prompt.json"));
}

TEST(RequireValid, RefusesAnEmptyDatasetAndOneSmallerThanABatch) {
  TempFolder folder;
  folder.write("prompt.json", "\n");
  EXPECT_THAT(data_fault([&] { require_valid(read_dataset(folder.path().string()), 1); }),
              HasSubstr("no samples"));
  folder.write("prompt.json", std::string(kGood) + "\n" + kGood);
  const Dataset two = read_dataset(folder.path().string());
  EXPECT_NO_THROW(require_valid(two, 2));
  EXPECT_THAT(data_fault([&] { require_valid(two, 3); }),
              HasSubstr("2 samples are fewer than one batch of 3"));
}

class FindDataFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_.write("set/prompt.json", kGood);
    folder_.write("secret.png", "outside");
    dataset_ = read_dataset(folder_.file("set"));
  }
  std::string fault(const std::string& relative) {
    return data_fault([&] { find_data_file(dataset_, relative); });
  }
  TempFolder folder_;
  Dataset dataset_;
};

TEST_F(FindDataFile, GivesSizeAndTime) {
  folder_.write("set/s/a.png", "12345");
  const DataFile file = find_data_file(dataset_, "s/a.png");
  EXPECT_EQ(file.stamp.size, 5);
  EXPECT_GT(file.stamp.modified_ns, 0);
  folder_.write("set/s/a.png", "123456");
  EXPECT_NE(find_data_file(dataset_, "s/a.png").stamp, file.stamp);
}

TEST_F(FindDataFile, FollowsLinksInsideTheFolderOnly) {
  folder_.write("set/a.png", "x");
  std::filesystem::create_symlink("a.png", folder_.file("set/inside.png"));
  std::filesystem::create_symlink("../secret.png", folder_.file("set/outside.png"));
  std::filesystem::create_symlink(folder_.path(), folder_.file("set/up"));
  EXPECT_EQ(fault("inside.png"), "no fault");
  EXPECT_THAT(fault("outside.png"), HasSubstr("leads out of the folder"));
  EXPECT_THAT(fault("up/secret.png"), HasSubstr("leads out of the folder"));
}

TEST_F(FindDataFile, RefusesWhatIsNotARegularFile) {
  ASSERT_EQ(::mkfifo(folder_.file("set/pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder_.file("set/sub"));
  EXPECT_EQ(fault("pipe"), "not a regular file");
  EXPECT_EQ(fault("sub"), "a folder, not a file");
  EXPECT_EQ(fault("nothing.png"), "no such file");
}

}  // namespace
}  // namespace stagecraft
