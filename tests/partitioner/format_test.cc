#include "partitioner/base/format.h"

#include <gtest/gtest.h>

namespace stagecraft {
namespace {

TEST(Format, SizesAreReadInTheWaysPeopleWriteThem) {
  const Bytes twenty_gib{int64_t{20} << 30};
  EXPECT_EQ(parse_size("20GiB"), twenty_gib);
  EXPECT_EQ(parse_size("20480MiB"), twenty_gib);
  EXPECT_EQ(parse_size("20480"), twenty_gib);
  EXPECT_EQ(parse_size("1.5GiB"), Bytes{int64_t{3} << 29});
  EXPECT_EQ(parse_size("0.5"), Bytes{1 << 19});
  EXPECT_EQ(parse_size("1073741824"), Bytes{int64_t{1} << 50});
}

TEST(Format, WhatIsNoSizeIsNotRead) {
  for (const char* text :
       {"",           "MiB",        "GiB",          "0",
        "0GiB",       "-1",         "-1GiB",        "20GB",
        "20G",        "20gib",      "20 GiB",       " 20",
        "20 ",        "2e3",        "0x10",         "nan",
        "inf",        "1,5GiB",     "20GiBGiB",     "20MiBGiB",
        "1073741825", "1048577GiB", "0.0000000001", "99999999999999999999999999"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
}

}  // namespace
}  // namespace stagecraft
