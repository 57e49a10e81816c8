// Token ids against transformers' CLIPTokenizer, run live.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>

#include "models/text/tokenizer.h"
#include "tests/models/scratch_folder.h"
#include "tests/support/programs.h"
#include "tests/support/python.h"

namespace stagecraft {
namespace {

TEST(TokenizerParity, IdsEqualThoseOfTransformersForAllCaptions) {
  const ScratchFolder folder;
  must_run(python_command("tests/models_torch/tokenizer_parity.py", {folder.path()}));
  std::filesystem::create_directory(folder.file("single"));
  std::filesystem::rename(folder.file("tokenizer.json"), folder.file("single/tokenizer.json"));
  const ClipTokenizer pair(folder.file("tokenizer")), single(folder.file("single"));
  EXPECT_EQ(pair.vocabulary_size(), 49408);
  EXPECT_EQ(single.vocabulary_size(), 49408);
  std::ifstream captions(folder.file("captions"), std::ios::binary);
  std::ifstream ids(folder.file("ids"), std::ios::binary);
  size_t count = 0;
  for (uint32_t size; captions.read(reinterpret_cast<char*>(&size), sizeof size); ++count) {
    std::string caption(size, '\0');
    captions.read(caption.data(), size);
    std::vector<int32_t> row(77);
    ids.read(reinterpret_cast<char*>(row.data()), 77 * 4);
    const std::vector<int64_t> expected(row.begin(), row.end());
    EXPECT_EQ(pair.encode(caption), expected) << caption;
    EXPECT_EQ(single.encode(caption), expected) << caption;
  }
  EXPECT_EQ(count, 300u);
}

}  // namespace
}  // namespace stagecraft
