#include "app/busy_shares.h"

#include <gtest/gtest.h>

namespace staffel {
namespace {

using std::chrono::milliseconds;

const WorkerId kWorker(7);

class BusySharesTest : public ::testing::Test {
 protected:
  // Heartbeats every 50 ms for so long, of a rank that computes a share of the time.
  void Run(int seconds, double busy, int epoch = 1) {
    if (epoch != epoch_) total_s_ = 0;
    epoch_ = epoch;
    for (int i = 0; i < 20 * seconds; ++i) {
      now_ += milliseconds(50);
      total_s_ += 0.05 * busy;
      Heartbeat beat;
      beat.replica = ReplicaId(0);
      beat.epoch = epoch;
      beat.compute_s = total_s_;
      shares_.Hear(now_, kWorker, beat);
    }
  }

  BusyShares shares_;
  Time now_{std::chrono::hours(1)};
  double total_s_ = 0;
  int epoch_ = 0;
};

TEST_F(BusySharesTest, IsOfTheLastSeconds) {
  EXPECT_EQ(shares_.Share(kWorker), -1);
  Run(3, 0.5);
  EXPECT_NEAR(shares_.Share(kWorker), 0.5, 0.01);
  Run(30, 0.9);
  EXPECT_NEAR(shares_.Share(kWorker), 0.9, 0.01);
  Run(5, 0);
  EXPECT_NEAR(shares_.Share(kWorker), 0.45, 0.05);
  Run(6, 0);
  EXPECT_EQ(shares_.Share(kWorker), 0);
}

TEST_F(BusySharesTest, AnEpochBeginsAnew) {
  Run(10, 1);
  Run(1, 0.2, 2);
  EXPECT_NEAR(shares_.Share(kWorker), 0.2, 0.01);
  shares_.Forget(kWorker);
  EXPECT_EQ(shares_.Share(kWorker), -1);
}

TEST_F(BusySharesTest, TotalsThatGoBackAreNoNegativeShare) {
  Run(1, 1);
  total_s_ = 0;
  Run(1, 0);
  EXPECT_EQ(shares_.Share(kWorker), 0);
}

TEST_F(BusySharesTest, AWorkerWithoutReplicaHasNone) {
  Heartbeat idle;
  idle.replica = ReplicaId();
  shares_.Hear(now_, kWorker, idle);
  shares_.Hear(now_ + milliseconds(50), kWorker, idle);
  EXPECT_EQ(shares_.Share(kWorker), -1);
}

}  // namespace
}  // namespace staffel
