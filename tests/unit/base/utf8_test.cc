#include "base/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace staffel {
namespace {

TEST(IsValidUtf8, TableOfEdges) {
  for (const char* good : {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf",
                           "eight ascii letters then \xe2\x96\x81"}) {
    EXPECT_TRUE(IsValidUtf8(good)) << good;
    EXPECT_TRUE(IsValidUtf8(std::string(good) + "12345678" + good));
  }
  for (const char* bad :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xc2", "\xc2\x20", "\xe0\x9f\xbf", "\xe0\xa0",
        "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf0\x90\x80", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "\xfe"}) {
    EXPECT_FALSE(IsValidUtf8(bad));
    EXPECT_FALSE(IsValidUtf8(std::string("12345678") + bad + "12345678"));
  }
  EXPECT_TRUE(IsValidUtf8(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace staffel
