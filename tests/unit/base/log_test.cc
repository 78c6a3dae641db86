#include "base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

namespace staffel {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { InitLogging(LogLevel::kInfo, LogFormat::kText); }

  static std::string Logged(LogLevel level, LogFormat format, const std::string& message) {
    ::testing::internal::CaptureStderr();
    InitLogging(level, format);
    spdlog::info("{}", message);
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(LogTest, TextLines) {
  EXPECT_THAT(Logged(LogLevel::kInfo, LogFormat::kText, "hello"),
              MatchesRegex("[0-9-]+ [0-9:.]+ info    hello\n"));
}

TEST_F(LogTest, JsonLines) {
  EXPECT_THAT(Logged(LogLevel::kInfo, LogFormat::kJson, "say \"x\"\n\\\x01"),
              AllOf(HasSubstr("\"level\":\"info\""), HasSubstr("Z\","),
                    EndsWith("\"message\":\"say \\\"x\\\"\\n\\\\\\u0001\"}\n")));
}

TEST_F(LogTest, AMessageIsOneLineWhateverIsInIt) {
  EXPECT_THAT(Logged(LogLevel::kInfo, LogFormat::kText, "a\nb\r\x1b[2J"),
              EndsWith("a\\nb\\x0d\\x1b[2J\n"));
}

TEST_F(LogTest, LevelsBelowTheSetOneAreSilent) {
  EXPECT_EQ(Logged(LogLevel::kWarning, LogFormat::kText, "hello"), "");
  EXPECT_EQ(Logged(LogLevel::kOff, LogFormat::kText, "hello"), "");
}

}  // namespace
}  // namespace staffel
