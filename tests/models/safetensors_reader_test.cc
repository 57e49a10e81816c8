#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "models/weights/safetensors.h"
#include "models/weights/safetensors_header.h"
#include "partitioner/base/error.h"
#include "tests/models/scratch_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

std::string with_length(const std::string& header, const std::string& data) {
  std::string text;
  for (int i = 0; i < 8; ++i) {
    text.push_back(static_cast<char>(static_cast<uint64_t>(header.size()) >> (8 * i)));
  }
  return text + header + data;
}

// Parts behind each other; operator+ in chains trips g++ 12's -Wrestrict (GCC bug 105651).
template <typename... Parts>
std::string join(const Parts&... parts) {
  std::string text;
  (text.append(parts), ...);
  return text;
}

std::string tensor(const std::string& name, const std::string& rest) {
  return join("\"", name, "\":{", rest, "}");
}

// Two tensors that cover 12 bytes.
const std::string kA = tensor("a", R"("dtype":"F32","shape":[2],"data_offsets":[0,8])");
const std::string kB = tensor("b", R"("dtype":"F16","shape":[1,2],"data_offsets":[8,12])");
const std::string kData = "0123456789ab";

class Safetensors : public ::testing::Test {
 protected:
  // The error that opening such a file ends in; its code is always that of a damaged file.
  std::string refusal(const std::string& content) {
    const std::string path = folder_.write("x.safetensors", content);
    try {
      SafetensorsReader reader(path);
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), ExitCode::kNoCheckpoint) << error.what();
      EXPECT_THAT(error.what(), HasSubstr("x.safetensors: "));
      for (const char c : std::string(error.what())) EXPECT_TRUE(c >= 0x20 && c < 0x7f);
      return error.what();
    }
    return "accepted";
  }
  std::string refusal_of_header(const std::string& header, const std::string& data = kData) {
    return refusal(with_length(header, data));
  }
  ScratchFolder folder_;
};

TEST_F(Safetensors, ReadsNamesShapesDtypesMetadataAndBytes) {
  const std::string header = join(R"({"__metadata__":{"format":"pt"},)", kB, ",", kA, "}  ");
  const SafetensorsReader reader(folder_.write("f", with_length(header, kData)));
  EXPECT_EQ(reader.tensors().size(), 2u);
  EXPECT_EQ(reader.tensors().at("a"),
            (TensorInfo{.name = "a", .dtype = DType::kF32, .shape = {2}}));
  EXPECT_EQ(reader.tensors().at("b"),
            (TensorInfo{.name = "b", .dtype = DType::kF16, .shape = {1, 2}}));
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  std::string b(4, ' '), part(3, ' ');
  reader.read("b", std::as_writable_bytes(std::span(b)));
  EXPECT_EQ(b, "89ab");
  reader.read_part("a", 4, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "456");
}

TEST_F(Safetensors, AcceptsEmptyTensorsAndScalars) {
  const std::string header =
      join("{",
           tensor("e", R"("dtype":"F32","shape":[0,3],"data_offsets":[4,4])") + "," +
               tensor("s", R"("dtype":"F32","shape":[],"data_offsets":[0,4])") + "," +
               tensor("f", R"("dtype":"F32","shape":[0],"data_offsets":[0,0])"),
           "}");
  const SafetensorsReader reader(folder_.write("f", with_length(header, "abcd")));
  EXPECT_EQ(reader.tensors().at("e").bytes(), 0);
  EXPECT_EQ(reader.tensors().at("s").bytes(), 4);
}

TEST_F(Safetensors, OtherDtypesOfTheFormatAreListedButNotRead) {
  const std::string header =
      join("{", tensor("d", R"("dtype":"F64","shape":[1],"data_offsets":[0,8])"), "}");
  const SafetensorsReader reader(folder_.write("f", with_length(header, "01234567")));
  EXPECT_TRUE(reader.tensors().empty());
  EXPECT_EQ(reader.unreadable().at("d"), "F64");
  std::string out(8, ' ');
  try {
    reader.read("d", std::as_writable_bytes(std::span(out)));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kPlanMismatch);
    EXPECT_THAT(error.what(), HasSubstr("'d' has dtype F64"));
  }
}

TEST_F(Safetensors, RefusesEveryTruncation) {
  const std::string whole = with_length(join("{", kA, ",", kB, "}"), kData);
  for (size_t n = 0; n < whole.size(); ++n) {
    EXPECT_NE(refusal(whole.substr(0, n)), "accepted") << n;
  }
  EXPECT_EQ(refusal(whole), "accepted");
  EXPECT_THAT(refusal(whole.substr(0, 7)), HasSubstr("byte 7: "));
  EXPECT_THAT(refusal(whole.substr(0, 20)), HasSubstr("byte 20: "));
}

TEST_F(Safetensors, RefusesTrailingBytes) {
  EXPECT_THAT(refusal_of_header(join("{", kA, ",", kB, "}"), kData + "x"),
              HasSubstr("13 bytes of data, but the header describes 12"));
}

TEST_F(Safetensors, RefusesHeadersThatAreTooLongOrLongerThanTheFile) {
  for (const uint64_t length :
       {uint64_t{1} << 63, ~uint64_t{0}, uint64_t{101} << 20, (uint64_t{4} << 20) + 1}) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &length, 8);
    EXPECT_THAT(refusal(text + "{}"), HasSubstr("byte 0: a header of " + std::to_string(length)));
  }
  std::string text(8, '\0');
  text[0] = 3;
  EXPECT_THAT(refusal(text + "{}"), HasSubstr("byte 10: "));
}

TEST_F(Safetensors, RefusesOverlapsHolesAndOffsetsOutside) {
  const auto pair = [](const std::string& a, const std::string& b) {
    return join("{", tensor("a", join(R"("dtype":"U8","shape":[4],"data_offsets":)", a)), ",",
                tensor("b", join(R"("dtype":"U8","shape":[4],"data_offsets":)", b)), "}");
  };
  EXPECT_EQ(refusal_of_header(pair("[0,4]", "[4,8]"), "01234567"), "accepted");
  for (const auto& [a, b] : std::vector<std::pair<std::string, std::string>>{
           {"[0,4]", "[0,4]"},   // twice the same
           {"[0,4]", "[3,7]"},   // overlap
           {"[0,4]", "[5,9]"},   // hole
           {"[1,5]", "[5,9]"},   // not from 0
           {"[4,0]", "[4,8]"},   // reversed
           {"[0,4]", "[4,9]"},   // longer than its shape
           {"[0,4]", "[9,13]"},  // behind the end
           {"[0,4]", "[4]"},
           {"[0,4]", "[4,8,8]"},
           {"[0,4]", "[]"},
           {"[0,4]", "[-4,0]"},
           {"[0,4]", "[4,18446744073709551615]"},
           {"[0,4]", "[4,99999999999999999999999]"},
           {"[0,4]", "[4.0,8.0]"},
           {"[0,4]", "[[4,8]]"},
           {"[0,4]", "8"},
       }) {
    EXPECT_NE(refusal_of_header(pair(a, b), "01234567"), "accepted") << a << " " << b;
  }
}

TEST_F(Safetensors, RefusesShapesThatDoNotMatchOrOverflow) {
  for (const std::string shape :
       {"[3]", "[1]", "[-2]", "[2.0]", "[4294967296,4294967296]", "[9223372036854775807]",
        "[0,9223372036854775807,9223372036854775807]", "[18446744073709551616]", "[[2]]", "2",
        "[null]", "[\"2\"]", "{}", "[true]"}) {
    const std::string header =
        join("{", tensor("a", join(R"("dtype":"F32","shape":)", shape, R"(,"data_offsets":[0,8])")),
             "}");
    EXPECT_THAT(refusal_of_header(header, "01234567"), HasSubstr("'a'")) << shape;
  }
}

TEST_F(Safetensors, RefusesUnknownDtypes) {
  for (const std::string dtype : {"\"F31\"", "\"\"", "\"f32\"", "4", "null", "[\"F32\"]"}) {
    const std::string header =
        join("{", tensor("a", R"("shape":[2],"data_offsets":[0,8],"dtype":)" + dtype), "}");
    EXPECT_NE(refusal_of_header(header, "01234567"), "accepted") << dtype;
  }
}

TEST_F(Safetensors, RefusesDuplicates) {
  EXPECT_THAT(refusal_of_header(join("{", kA, ",", kA, ",", kB, "}")),
              HasSubstr("'a' occurs twice"));
  EXPECT_THAT(refusal_of_header(join(R"({"__metadata__":{},"__metadata__":{},)", kA, ",", kB, "}")),
              HasSubstr("'__metadata__' occurs twice"));
  EXPECT_THAT(refusal_of_header(join(R"({"__metadata__":{"k":"1","k":"2"},)", kA, ",", kB, "}")),
              HasSubstr("'k' occurs twice"));
  EXPECT_THAT(refusal_of_header(
                  R"({"a":{"dtype":"U8","shape":[4],"shape":[4],"data_offsets":[0,4]}})", "0123"),
              HasSubstr("'shape' occurs twice"));
}

TEST_F(Safetensors, RefusesMissingAndUnknownKeys) {
  EXPECT_NE(refusal_of_header(R"({"a":{"shape":[4],"data_offsets":[0,4]}})", "0123"), "accepted");
  EXPECT_NE(refusal_of_header(R"({"a":{"dtype":"U8","data_offsets":[0,4]}})", "0123"), "accepted");
  EXPECT_NE(refusal_of_header(R"({"a":{"dtype":"U8","shape":[4]}})", "0123"), "accepted");
  EXPECT_THAT(
      refusal_of_header(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4],"x":1}})", "0123"),
      HasSubstr("unknown key 'x'"));
}

TEST_F(Safetensors, RefusesBadNames) {
  for (const std::string name :
       {"../../x", "a/../b", "/etc/passwd", "a\\\\b", "", "a\\u0000b", "a\\nb", "..", "\\u007f"}) {
    const std::string header =
        join("{", tensor(name, R"("dtype":"U8","shape":[4],"data_offsets":[0,4])"), "}");
    EXPECT_THAT(refusal_of_header(header, "0123"), HasSubstr("not acceptable")) << name;
  }
  const std::string long_name =
      "{" + tensor(std::string(5000, 'n'), R"("dtype":"U8","shape":[4],"data_offsets":[0,4])") +
      "}";
  EXPECT_THAT(refusal_of_header(long_name, "0123"), HasSubstr("(5000 bytes)"));
}

TEST_F(Safetensors, RefusesBadTextNamingTheByte) {
  EXPECT_THAT(refusal_of_header("", ""), HasSubstr("byte 8: "));
  EXPECT_THAT(refusal_of_header(" {}", ""), HasSubstr("byte 8: "));
  EXPECT_THAT(refusal_of_header("[]", ""), HasSubstr("byte 8: "));
  EXPECT_THAT(refusal_of_header("{}x", ""), HasSubstr("byte 10: "));
  EXPECT_THAT(refusal_of_header(std::string("{}\0", 3), ""), HasSubstr("byte 10: NUL"));
  EXPECT_THAT(refusal_of_header("{\"a\xff\":", ""), HasSubstr("byte 11: "));
  EXPECT_NE(refusal_of_header("{\"\xed\xa0\x80\":", ""), "accepted");  // a surrogate
  EXPECT_NE(refusal_of_header("{\"\xc0\xaf\":", ""), "accepted");      // overlong
  EXPECT_NE(refusal_of_header("{/**/}", ""), "accepted");
  EXPECT_NE(refusal_of_header("{\"a\":NaN}", ""), "accepted");
  EXPECT_NE(refusal_of_header(join("{", kA, ",}"), "01234567"), "accepted");
  EXPECT_EQ(refusal_of_header("{}", ""), "accepted");
}

TEST_F(Safetensors, RefusesDeepNestingAtItsFirstLevel) {
  const std::string deep(1 << 20, '[');
  EXPECT_THAT(refusal_of_header("{\"a\":" + deep, ""), HasSubstr("'a': a list"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal_of_header(objects, ""), HasSubstr("'a'"));
}

TEST_F(Safetensors, EveryFlippedHeaderBitIsRefusedOrChangesWhatIsRead) {
  const std::string header = join("{", kA, ",", kB, "}");
  const auto summary = [](const SafetensorsHeader& parsed) {
    std::string text;
    for (const auto& [name, entry] : parsed.tensors) {
      text +=
          join(name, entry.dtype, std::to_string(entry.begin), testing::PrintToString(entry.shape));
    }
    return text;
  };
  const std::string good = summary(parse_safetensors_header(header, 12, "x"));
  for (size_t bit = 0; bit < header.size() * 8; ++bit) {
    std::string bad = header;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    try {
      EXPECT_NE(summary(parse_safetensors_header(bad, 12, "x")), good) << bad;
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), ExitCode::kNoCheckpoint);
    }
  }
}

TEST_F(Safetensors, EveryFlippedBitOfTheLengthIsRefused) {
  const std::string whole = with_length(join("{", kA, ",", kB, "}"), kData);
  for (size_t bit = 0; bit < 64; ++bit) {
    std::string bad = whole;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(refusal(bad), "accepted") << bit;
  }
}

TEST_F(Safetensors, RefusesLinksPipesAndFoldersWithoutWaiting) {
  const std::string file = folder_.write("good", with_length(join("{", kA, ",", kB, "}"), kData));
  std::filesystem::create_symlink(file, folder_ / "link");
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(folder_ / "folder");
  for (const std::string name : {"link", "pipe", "folder"}) {
    try {
      SafetensorsReader reader(folder_ / name);
      ADD_FAILURE() << name;
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), ExitCode::kNoCheckpoint) << error.what();
    }
  }
}

TEST_F(Safetensors, AbsentFileIsAnIoError) {
  try {
    SafetensorsReader reader(folder_ / "absent");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_THAT(error.what(), HasSubstr("absent: cannot open for reading: No such file"));
  }
}

TEST_F(Safetensors, SeesAFileCutShortAfterOpening) {
  const std::string path = folder_.write("f", with_length(join("{", kA, ",", kB, "}"), kData));
  const SafetensorsReader reader(path);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 2);
  std::string b(4, ' ');
  try {
    reader.read("b", std::as_writable_bytes(std::span(b)));
    FAIL();
  } catch (const InputError& error) {
    EXPECT_EQ(error.code(), ExitCode::kNoCheckpoint);
    EXPECT_THAT(error.what(), HasSubstr("2 more bytes expected"));
  }
}

TEST_F(Safetensors, ReadRefusesUnknownNamesAndOtherSizes) {
  const SafetensorsReader reader(
      folder_.write("f", with_length(join("{", kA, ",", kB, "}"), kData)));
  std::string out(4, ' ');
  const auto bytes = std::as_writable_bytes(std::span(out));
  EXPECT_THROW(reader.read("c", bytes), InputError);
  EXPECT_THROW(reader.read("a", bytes), InputError);
  EXPECT_THROW(reader.read_part("a", 5, bytes), InputError);
  EXPECT_THROW(reader.read_part("a", -1, bytes), InputError);
  EXPECT_THROW(reader.read_part("a", 9, bytes.first(0)), InputError);
  EXPECT_NO_THROW(reader.read_part("a", 8, bytes.first(0)));
}

}  // namespace
}  // namespace stagecraft
