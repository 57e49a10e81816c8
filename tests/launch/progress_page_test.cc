#include "pipeline/launch/progress_page.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "pipeline/launch/verdict.h"

namespace stagecraft {
namespace {

TEST(ProgressPage, StartsEmpty) {
  const ProgressPage page;
  const ProgressSnapshot snapshot = page.read();
  EXPECT_EQ(snapshot.step, -1);
  EXPECT_EQ(snapshot.section, Section::kStart);
  EXPECT_EQ(snapshot.micro_batch, -1);
  EXPECT_EQ(snapshot.operation, "");
  EXPECT_FALSE(snapshot.has_error);
  EXPECT_FALSE(snapshot.goodbye);
}

TEST(ProgressPage, WhatOneMappingWritesTheOtherReads) {
  const Descriptor memory = ProgressPage::make_memory();
  ProgressPage rank(memory.get());
  const ProgressPage launcher(memory.get());
  const uint64_t before = launcher.read().beats;
  rank.set_section(Section::kBackward, 17);
  rank.set_action(41, "B2.1", 2);
  const ProgressSnapshot snapshot = launcher.read();
  EXPECT_EQ(snapshot.step, 17);
  EXPECT_EQ(snapshot.section, Section::kBackward);
  EXPECT_EQ(snapshot.action, 41);
  EXPECT_EQ(snapshot.operation, "B2.1");
  EXPECT_EQ(snapshot.micro_batch, 2);
  EXPECT_GT(snapshot.beats, before);
  EXPECT_GT(snapshot.heartbeat_ns, 0);
}

TEST(ProgressPage, KeepsTheFirstErrorAndCutsLongText) {
  ProgressPage page;
  std::string text;
  while (text.size() < 300 * 1024) text += std::string(99, 'x') + '\n';
  page.set_error(ExitCode::kStall, text, true);
  page.set_error(ExitCode::kInternal, "second", false);
  const ProgressSnapshot snapshot = page.read();
  EXPECT_TRUE(snapshot.has_error);
  EXPECT_EQ(snapshot.error_code, ExitCode::kStall);
  EXPECT_TRUE(snapshot.secondary);
  EXPECT_LT(snapshot.error_text.size(), 256u * 1024);
  EXPECT_GT(snapshot.error_text.size(), 255u * 1024);
  EXPECT_TRUE(snapshot.error_text.ends_with("xxx\n... and more"));
}

TEST(ProgressPage, CutsALongOperationName) {
  ProgressPage page;
  page.set_action(0, std::string(100, 'o'), 0);
  EXPECT_EQ(page.read().operation, std::string(23, 'o'));
}

TEST(ProgressPage, ADescriptorThatIsNoPageIsRefused) { EXPECT_THROW(ProgressPage(-1), InputError); }

TEST(ProgressPage, IsReadWhateverStandsInIt) {
  const Descriptor memory = ProgressPage::make_memory();
  const ProgressPage page(memory.get());
  for (const char* numbers : {"\0\0\0\x80", "\xFF\xFF\xFF\x7F", "\xFF\xFF\xFF\xFF"}) {
    // The lowest, the highest and -1, in every field of four bytes and of eight.
    std::string bytes(1024, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = numbers[i % 4];
    ASSERT_EQ(::pwrite(memory.get(), bytes.data(), bytes.size(), 0), 1024);
    EXPECT_LE(page.read().operation.size(), 24u);
  }
}

TEST(Verdict, SaysWhoWhereAndHow) {
  RankEnd end{.rank = 2, .signal = 9, .progress = {}};
  end.progress.step = 17;
  end.progress.section = Section::kBackward;
  end.progress.operation = "B2.1";
  const std::vector<std::string> labels = {"stage 0", "stage 1", "stage 2"};
  EXPECT_EQ(describe_end(end, labels),
            "rank 2 (stage 2) was killed by signal 9 (SIGKILL) in step 17, section backward, last "
            "operation B2.1");
  end.signal = 0;
  end.exit_code = 3;
  EXPECT_EQ(describe_end(end, {}),
            "rank 2 exited with code 3 in step 17, section backward, last operation B2.1");
}

TEST(Verdict, CodesOutsideOfOursAreADeath) {
  EXPECT_EQ(code_of({.exit_code = 1, .progress = {}}), ExitCode::kRankDied);
  EXPECT_EQ(code_of({.exit_code = 0, .progress = {}}), ExitCode::kRankDied);
  EXPECT_EQ(code_of({.exit_code = 127, .progress = {}}), ExitCode::kRankDied);
  EXPECT_EQ(code_of({.exit_code = 11, .progress = {}}), ExitCode::kNonFinite);
  EXPECT_EQ(code_of({.signal = 11, .progress = {}}), ExitCode::kRankDied);
}

TEST(Verdict, OnlyAGoodbyeMakesAnExitOrderly) {
  RankEnd end{.progress = {}};
  EXPECT_FALSE(left_orderly(end));
  end.progress.goodbye = true;
  EXPECT_TRUE(left_orderly(end));
  end.exit_code = 143;
  EXPECT_TRUE(left_orderly(end));
  end.exit_code = 11;
  EXPECT_FALSE(left_orderly(end));
  end.exit_code = 0;
  end.signal = 9;
  EXPECT_FALSE(left_orderly(end));
}

TEST(Verdict, AStoppedRankIsTheCauseOfAStall) {
  EXPECT_EQ(culprit_of_stall({{.rank = 0, .section = Section::kForward},
                              {.rank = 1, .stopped = true, .section = Section::kReceive}},
                             0),
            1);
}

TEST(Verdict, ARankThatWaitsForNobodyIsTheCauseOfAStall) {
  EXPECT_EQ(culprit_of_stall({{.rank = 0, .section = Section::kSave},
                              {.rank = 1, .section = Section::kSave},
                              {.rank = 2, .section = Section::kForward}},
                             1),
            2);
}

TEST(Verdict, AStallWhileAllSaveIsTheWriters) {
  EXPECT_EQ(
      culprit_of_stall(
          {{.rank = 0, .section = Section::kSave}, {.rank = 1, .section = Section::kSave}}, 1),
      0);
}

TEST(Verdict, AStallInWhichAllWaitIsThatOfTheFirstSilentRank) {
  EXPECT_EQ(
      culprit_of_stall(
          {{.rank = 0, .section = Section::kReceive}, {.rank = 1, .section = Section::kVote}}, 1),
      1);
}

}  // namespace
}  // namespace stagecraft
