#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/text/tokenizer.h"
#include "partitioner/base/error.h"
#include "tests/models/scratch_folder.h"

namespace stagecraft {
namespace {

using ::testing::HasSubstr;

// "ab" and "abc" at the end of a word are tokens; single letters inside and at the end too.
const std::string kVocabulary =
    R"({"a":0,"b":1,"c":2,"a</w>":3,"b</w>":4,"c</w>":5,"ab":6,"ab</w>":7,"abc</w>":8,)"
    R"("<|startoftext|>":9,"<|endoftext|>":10})";
const std::string kMerges = "#version: 0.2\na b\na b</w>\nab c</w>\n";

class TokenizerVocabulary : public ::testing::Test {
 protected:
  std::string refusal(const std::string& vocabulary, const std::string& merges,
                      ExitCode code = ExitCode::kPlanMismatch) {
    folder_.write("vocab.json", vocabulary);
    folder_.write("merges.txt", merges);
    return refusal_of_folder(code);
  }
  std::string refusal_of_folder(ExitCode code) {
    try {
      ClipTokenizer tokenizer(folder_.path());
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "accepted";
  }
  ScratchFolder folder_;
};

TEST_F(TokenizerVocabulary, MergesByRankAndMarksTheEndOfAWord) {
  EXPECT_EQ(refusal(kVocabulary, kMerges), "accepted");
  const ClipTokenizer tokenizer(folder_.path());
  EXPECT_EQ(tokenizer.vocabulary_size(), 11);
  EXPECT_EQ(tokenizer.encode("abc ab a", 8), (std::vector<int64_t>{9, 8, 7, 3, 10, 10, 10, 10}));
  EXPECT_EQ(tokenizer.encode("abab aabc", 8), (std::vector<int64_t>{9, 6, 7, 0, 8, 10, 10, 10}));
}

TEST_F(TokenizerVocabulary, BytesThatItDoesNotHoldAreTheUnknownToken) {
  EXPECT_EQ(refusal(kVocabulary, kMerges), "accepted");
  EXPECT_EQ(ClipTokenizer(folder_.path()).encode("azb", 6),
            (std::vector<int64_t>{9, 0, 10, 4, 10, 10}));
}

TEST_F(TokenizerVocabulary, CaptionsAreCutToTheLengthAndEndWithTheEndToken) {
  EXPECT_EQ(refusal(kVocabulary, kMerges), "accepted");
  const ClipTokenizer tokenizer(folder_.path());
  EXPECT_EQ(tokenizer.encode("a b c a b c", 4), (std::vector<int64_t>{9, 3, 4, 10}));
  EXPECT_EQ(tokenizer.encode("aaaaaaa", 4), (std::vector<int64_t>{9, 0, 0, 10}));
  EXPECT_EQ(tokenizer.encode("abc", 2), (std::vector<int64_t>{9, 10}));
  EXPECT_EQ(tokenizer.encode("", 3), (std::vector<int64_t>{9, 10, 10}));
  EXPECT_THROW(tokenizer.encode("a", 1), InternalError);
}

TEST_F(TokenizerVocabulary, CaptionsThatAreNotUtf8AreRefusedNamingTheByte) {
  EXPECT_EQ(refusal(kVocabulary, kMerges), "accepted");
  const ClipTokenizer tokenizer(folder_.path());
  for (const std::string bad :
       {"ab\xff", "ab\xc3", "ab\xed\xa0\x80", "ab\xc0\xaf", "ab\xf4\x90\x80\x80", "ab\x80"}) {
    try {
      tokenizer.encode(bad);
      ADD_FAILURE();
    } catch (const InputError& error) {
      EXPECT_EQ(error.code(), ExitCode::kDataInvalid);
      EXPECT_THAT(error.what(), HasSubstr("not UTF-8 at byte 2"));
    }
  }
}

TEST_F(TokenizerVocabulary, AVeryLongWordTakesNoQuadraticTime) {
  EXPECT_EQ(refusal(kVocabulary, kMerges), "accepted");
  std::string word;
  for (int i = 0; i < 200000; ++i) word += "ab";
  EXPECT_EQ(ClipTokenizer(folder_.path()).encode(word, 3), (std::vector<int64_t>{9, 6, 10}));
}

TEST_F(TokenizerVocabulary, ReadsBothFormsOfTokenizerJson) {
  for (const std::string merges :
       {R"(["a b","a b</w>","ab c</w>"])", R"([["a","b"],["a","b</w>"],["ab","c</w>"]])"}) {
    folder_.write("tokenizer.json",
                  R"({"model":{"type":"BPE","end_of_word_suffix":"</w>","vocab":)" + kVocabulary +
                      R"(,"merges":)" + merges + "}}");
    EXPECT_EQ(ClipTokenizer(folder_.path()).encode("abc", 3), (std::vector<int64_t>{9, 8, 10}));
  }
}

TEST_F(TokenizerVocabulary, OneByteTooManyIsNoTokenizerOfThePlan) {
  const auto filled = [](std::string text, char with) {
    text.resize(size_t{6} << 20, with);
    return text;
  };
  constexpr const char* kExpected = "6291457 bytes, at most 6291456 are allowed";
  const std::string vocabulary = filled(kVocabulary, ' '), merges = filled(kMerges, '\n');
  EXPECT_EQ(refusal(vocabulary, merges), "accepted");
  EXPECT_THAT(refusal(vocabulary + " ", kMerges), HasSubstr(kExpected));
  EXPECT_THAT(refusal(kVocabulary, merges + "\n"), HasSubstr(kExpected));
}

TEST_F(TokenizerVocabulary, OneByteTooManyInOneFileToo) {
  folder_.write("tokenizer.json", std::string((size_t{6} << 20) + 1, ' '));
  EXPECT_THAT(refusal_of_folder(ExitCode::kPlanMismatch), HasSubstr("at most 6291456 are"));
}

TEST_F(TokenizerVocabulary, RefusesOtherTokenizers) {
  folder_.write("tokenizer.json", R"({"model":{"type":"Unigram","vocab":[]}})");
  EXPECT_THAT(refusal_of_folder(ExitCode::kPlanMismatch), HasSubstr("not a CLIP tokenizer"));
  folder_.write("tokenizer.json", R"({"model":{"type":"BPE","end_of_word_suffix":"</w>"}})");
  EXPECT_THAT(refusal_of_folder(ExitCode::kPlanMismatch), HasSubstr("not an object of tokens"));
  folder_.write("tokenizer.json", "[]");
  EXPECT_THAT(refusal_of_folder(ExitCode::kPlanMismatch), HasSubstr("not a CLIP tokenizer"));
}

TEST_F(TokenizerVocabulary, AnEmptyFolderNamesWhatMakesOne) {
  EXPECT_THAT(refusal_of_folder(ExitCode::kIo), HasSubstr("tools/make_clip_vocab.py"));
}

TEST_F(TokenizerVocabulary, FaultsInMergesAreNamedWithTheirLine) {
  EXPECT_THAT(refusal(kVocabulary, kMerges + "a\n"), HasSubstr("merges.txt:5: 'a' is not two"));
  EXPECT_THAT(refusal(kVocabulary, kMerges + "a b c\n"), HasSubstr("merges.txt:5: "));
  EXPECT_THAT(refusal(kVocabulary, kMerges + "\na z\n"),
              HasSubstr("merges.txt:6: the merge names a token"));
  EXPECT_THAT(refusal(kVocabulary, kMerges + "a b\n"),
              HasSubstr("merges.txt:5: the merge occurs twice"));
}

TEST_F(TokenizerVocabulary, FaultsInTheVocabularyAreNamed) {
  EXPECT_THAT(refusal(R"({"a":0,"a":1})", ""), HasSubstr("vocab.json: key 'a' occurs twice"));
  EXPECT_THAT(refusal(R"({"a":0,"b":0})", ""), HasSubstr("the id 0 of 'b' occurs twice"));
  for (const std::string id : {"-1", "1.5", "\"1\"", "99999999999999999999", "16777217"}) {
    EXPECT_THAT(refusal("{\"a\":" + id + "}", ""), HasSubstr("the id of 'a'")) << id;
  }
  EXPECT_THAT(refusal(R"({"a":0})", ""), HasSubstr("no token '<|startoftext|>'"));
  EXPECT_THAT(refusal("{", ""), HasSubstr("vocab.json: "));
}

}  // namespace
}  // namespace stagecraft
