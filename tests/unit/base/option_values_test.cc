#include "base/option_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

template <class T>
std::string Message(const Result<T>& result) {
  return result.ok() ? "ok" : std::string(result.status().message());
}

TEST(OptionValues, Integers) {
  EXPECT_EQ(*ParseInteger("0", 0, 65535), 0);
  EXPECT_EQ(*ParseInteger("65535", 0, 65535), 65535);
  EXPECT_EQ(*ParseInteger("-5", -10, 10), -5);
  EXPECT_THAT(Message(ParseInteger("70000", 0, 65535)), "is 70000; it must be from 0 to 65535");
  EXPECT_THAT(Message(ParseInteger("-1", 0, 65535)), HasSubstr("is -1"));
  EXPECT_THAT(Message(ParseInteger("99999999999999999999", 0, 5)), HasSubstr("from 0 to 5"));
  for (const char* bad : {"", "abc", "1x", " 1", "1 ", "1.5", "+1", "0x10", "1e3"}) {
    EXPECT_THAT(Message(ParseInteger(bad, 0, 100)),
                AllOf(HasSubstr("\""), HasSubstr("whole number")))
        << bad;
  }
}

TEST(OptionValues, ByteCounts) {
  const std::pair<const char*, int64_t> cases[] = {{"0", 0},
                                                   {"1", 1},
                                                   {"4096", 4096},
                                                   {"512M", 512 << 20},
                                                   {"1.5GiB", 1610612736},
                                                   {"2GB", 2'000'000'000},
                                                   {"3k", 3072},
                                                   {"3KB", 3000},
                                                   {"7 MiB", 7 << 20},
                                                   {"1Gi", 1 << 30},
                                                   {"9B", 9},
                                                   {"9007199254740993", 9007199254740993},
                                                   {"9223372036854775807", kMax}};
  for (const auto& [text, bytes] : cases) EXPECT_EQ(*ParseByteCount(text, 0, kMax), bytes) << text;
  for (const char* bad : {"", "G", "-1", "1X", "1 G B", "nan", "inf", "1e30", "0x10"}) {
    EXPECT_FALSE(ParseByteCount(bad, 0, kMax).ok()) << bad;
  }
  EXPECT_FALSE(ParseByteCount("100000000T", 0, kMax).ok());
  EXPECT_THAT(Message(ParseByteCount("1K", 1 << 20, 1 << 30)),
              "is 1K; it must be from 1MiB to 1GiB");
}

TEST(OptionValues, Durations) {
  const Duration max = std::chrono::hours(24);
  EXPECT_EQ(*ParseDuration("15", {}, max), seconds(15));
  EXPECT_EQ(*ParseDuration("15s", {}, max), seconds(15));
  EXPECT_EQ(*ParseDuration("0.5", {}, max), milliseconds(500));
  EXPECT_EQ(*ParseDuration("250ms", {}, max), milliseconds(250));
  EXPECT_EQ(*ParseDuration("2m", {}, max), minutes(2));
  EXPECT_EQ(*ParseDuration("1h", {}, max), std::chrono::hours(1));
  for (const char* bad : {"", "s", "-1", "5 days", "1d", "nan", "1e400"}) {
    EXPECT_FALSE(ParseDuration(bad, {}, max).ok()) << bad;
  }
  EXPECT_THAT(Message(ParseDuration("25h", seconds(1), max)), "is 25h; it must be from 1s to 24h");
}

TEST(OptionValues, Switches) {
  for (const char* on : {"true", "On", "YES", "1"}) EXPECT_TRUE(*ParseSwitch(on));
  for (const char* off : {"false", "off", "No", "0"}) EXPECT_FALSE(*ParseSwitch(off));
  for (const char* bad : {"", "2", "enabled"}) EXPECT_FALSE(ParseSwitch(bad).ok());
}

TEST(OptionValues, FormattedValuesAreReadBack) {
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1} << 10,
                              int64_t{32} << 20, int64_t{1} << 40, int64_t{1'000'000}}) {
    EXPECT_EQ(*ParseByteCount(FormatByteCount(bytes), 0, kMax), bytes);
  }
  EXPECT_EQ(FormatByteCount(32 << 20), "32MiB");
  for (const Duration time : {Duration(seconds(0)), Duration(milliseconds(1)),
                              Duration(seconds(90)), Duration(std::chrono::hours(2))}) {
    EXPECT_EQ(*ParseDuration(FormatDuration(time), {}, std::chrono::hours(9)), time);
  }
  EXPECT_EQ(FormatDuration(seconds(15)), "15s");
  EXPECT_EQ(HumanBytes(98'362'432), "93.8 MiB");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
}

TEST(OptionValues, EditDistance) {
  EXPECT_EQ(EditDistance("port", "port"), 0);
  EXPECT_EQ(EditDistance("prot", "port"), 1);
  EXPECT_EQ(EditDistance("prt", "port"), 1);
  EXPECT_EQ(EditDistance("", "port"), 4);
  EXPECT_EQ(EditDistance("host", "port"), 2);
}

}  // namespace
}  // namespace staffel
