#include "app/stop_signals.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(StopRule, OneWishDeliveredTwiceIsNotASecondSignal) {
  using Answer = StopRule::Answer;
  const Time start(seconds(1000));
  StopRule rule;
  EXPECT_EQ(rule.At(start), Answer::kAsk);
  EXPECT_EQ(rule.At(start), Answer::kRepeat);
  EXPECT_EQ(rule.At(start + milliseconds(19)), Answer::kRepeat);
  EXPECT_EQ(rule.At(start + milliseconds(20)), Answer::kEndAtOnce);
}

TEST(StopSignals, AnEndIsAskedForOnce) {
  StopSignals signals;
  EXPECT_EQ(signals.Wait(milliseconds(1)), "");
  signals.Request("worker lost");
  signals.Request("later");
  EXPECT_EQ(signals.Wait(seconds(10)), "worker lost");
}

class StopSignalsDeathTest : public ::testing::Test {
 protected:
  StopSignalsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StopSignalsDeathTest, TheFirstSignalEndsAProcessThatIsStillLoading) {
  EXPECT_EXIT(
      {
        InitLogging(LogLevel::kInfo, LogFormat::kText);
        StopSignals signals;
        kill(getpid(), SIGTERM);
        sleep(10);
      },
      ::testing::ExitedWithCode(0), "SIGTERM");
}

TEST_F(StopSignalsDeathTest, TheFirstSignalAsksAndTheSecondEnds) {
  EXPECT_EXIT(
      {
        InitLogging(LogLevel::kInfo, LogFormat::kText);
        StopSignals signals;
        signals.EndAtFirst(false);
        kill(getpid(), SIGINT);
        if (signals.Wait(seconds(10)) != "SIGINT") _exit(1);
        usleep(100'000);
        kill(getpid(), SIGTERM);
        sleep(10);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "second signal");
}

}  // namespace
}  // namespace staffel
