// What is said about a profile that was made while others used the machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pipeline/profile/profiler.h"

namespace stagecraft {
namespace {

TEST(BusyWarning, AQuietMachineGivesNone) {
  EXPECT_EQ(busy_warning({.waiting = 0.02, .spread = 0.03}), "");
}

TEST(BusyWarning, NamesBothFiguresWhenOneIsLarge) {
  const char* expected =
      "warning: the machine was busy while the blocks were measured (63 % of the time without a "
      "core, times spread by 3 %); measure again when it is quiet";
  EXPECT_EQ(busy_warning({.waiting = 0.63, .spread = 0.03}), expected);
  EXPECT_THAT(busy_warning({.waiting = 0, .spread = 0.2}), ::testing::HasSubstr("spread by 20 %"));
}

}  // namespace
}  // namespace stagecraft
