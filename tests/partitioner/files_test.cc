#include "partitioner/base/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "partitioner/base/sha256.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

TEST(Files, WritesAndReadsBack) {
  TempFolder folder;
  const std::string content("a\0b\n", 4);
  write_file_atomically(folder.file("x"), content);
  EXPECT_EQ(read_file(folder.file("x"), 4), content);
}

TEST(Files, ReplacesAndLeavesNothingBeside) {
  TempFolder folder;
  write_file_atomically(folder.file("x"), "old");
  write_file_atomically(folder.file("x"), "new");
  EXPECT_EQ(read_file(folder.file("x"), 100), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, ALinkLeadsToTheFileItNames) {
  TempFolder folder;
  folder.write("there/x", "old");
  std::filesystem::create_symlink("there/x", folder.file("link"));
  write_file_atomically(folder.file("link"), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link")));
  EXPECT_EQ(read_file(folder.file("there/x"), 100), "new");
}

TEST(Files, PipesFoldersAndBrokenLinksAreNotReplaced) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder.file("folder"));
  std::filesystem::create_symlink("nowhere", folder.file("link"));
  std::filesystem::create_symlink("/dev/null", folder.file("device"));
  for (const char* name : {"pipe", "folder", "link", "device"}) {
    const auto before = std::filesystem::symlink_status(folder.file(name)).type();
    const auto error = caught([&] { write_file_atomically(folder.file(name), "new"); });
    EXPECT_EQ(error.code, ExitCode::kIo) << name;
    EXPECT_THAT(error.message, HasSubstr(folder.file(name)));
    EXPECT_EQ(std::filesystem::symlink_status(folder.file(name)).type(), before) << name;
  }
}

TEST(Files, RefusesMoreThanAllowed) {
  TempFolder folder;
  const auto error = caught([&] { read_file(folder.write("x", "12345"), 4); });
  EXPECT_EQ(error.code, ExitCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("5 bytes, at most 4"));
}

TEST(Files, TooLargeIsWhatTheReaderSaysItIs) {
  TempFolder folder;
  const std::string path = folder.write("x", "12345");
  EXPECT_EQ(caught([&] { read_file(path, 4, ExitCode::kDataInvalid); }).code,
            ExitCode::kDataInvalid);
  EXPECT_EQ(read_file(path, 5, ExitCode::kDataInvalid), "12345");
  EXPECT_EQ(caught([&] { read_file(folder.file("no"), 4, ExitCode::kDataInvalid); }).code,
            ExitCode::kIo);
}

TEST(Files, MissingFileIsAnIoErrorThatNamesIt) {
  const auto error = caught([] { read_file("/nonexistent/x", 10); });
  EXPECT_EQ(error.code, ExitCode::kIo);
  EXPECT_EQ(error.message, "cannot open /nonexistent/x: No such file or directory");
}

TEST(Files, PipeIsRefusedWithoutWaiting) {
  TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.file("p").c_str(), 0600), 0);
  EXPECT_THAT(caught([&] { read_file(folder.file("p"), 10); }).message,
              HasSubstr("not a regular file"));
}

TEST(Files, FolderIsRefused) {
  TempFolder folder;
  EXPECT_EQ(caught([&] { read_file(folder.path().string(), 10); }).code, ExitCode::kIo);
}

TEST(Files, WritingIntoAMissingFolderIsAnIoError) {
  TempFolder folder;
  EXPECT_EQ(caught([&] { write_file_atomically(folder.file("no/x"), "1"); }).code, ExitCode::kIo);
}

TEST(Files, FailedRenameKeepsWhatWasThere) {
  TempFolder folder;
  folder.write("x/inside", "kept");  // a folder cannot be replaced by a file
  EXPECT_EQ(caught([&] { write_file_atomically(folder.file("x"), "1"); }).code, ExitCode::kIo);
  EXPECT_EQ(read_file(folder.file("x/inside"), 10), "kept");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(Files, ADiskThatIsTooSmallIsRefusedWithNumbersAndAdvice) {
  TempFolder folder;
  const std::string path = folder.path().string();
  EXPECT_NO_THROW(require_space(path, {1}, "buy one"));
  const auto error = caught([&] { require_space(path, {int64_t{1} << 60}, "buy one"); });
  EXPECT_EQ(error.code, ExitCode::kIo);
  EXPECT_THAT(error.message, HasSubstr(path + ": 1,099,511,627,776.0 MiB of disk are needed, "));
  EXPECT_THAT(error.message, HasSubstr(" MiB are free; buy one"));
}

TEST(Files, AFolderWhoseSpaceIsNotKnownIsRefused) {
  const auto error = caught([] { require_space("/nonexistent", {1}, "buy one"); });
  EXPECT_EQ(error.code, ExitCode::kIo);
  EXPECT_THAT(error.message, HasSubstr("/nonexistent: No such file"));
}

// NIST's example vectors for SHA-256.
TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, OfAFileEqualsThatOfItsBytes) {
  TempFolder folder;
  const std::string content(3'000'001, 'q');
  EXPECT_EQ(sha256_hex_of_file(folder.write("x", content)), sha256_hex(content));
}

TEST(Sha256, OfAMissingFileIsAnIoError) {
  EXPECT_EQ(caught([] { sha256_hex_of_file("/nonexistent/x"); }).code, ExitCode::kIo);
}

}  // namespace
}  // namespace stagecraft
