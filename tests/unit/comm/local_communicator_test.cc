#include "comm/local/local_communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;

using Communicators = std::vector<std::unique_ptr<Communicator>>;

std::vector<int> Iota(int count, int first = 0) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i);
  return ranks;
}

// body(rank, communicator) on one thread for each rank.
void RunRanks(Communicators& communicators, std::function<void(int, Communicator&)> body) {
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < communicators.size(); ++rank) {
    threads.emplace_back([&, rank] { body(static_cast<int>(rank), *communicators[rank]); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(LocalCommunicator, SumsInRankOrderToTheBit) {
  const uint64_t seed = TestSeed();
  for (int size : {2, 3, 5}) {
    for (int length : {0, 1, 2, 7, 64, 1000}) {
      std::vector<std::vector<float>> data(size, std::vector<float>(length));
      std::mt19937_64 random(seed);
      std::normal_distribution<float> normal(0, 1e3f);
      for (auto& row : data) {
        for (float& x : row) x = normal(random);
      }
      std::vector<float> expected(length, 0.0f);
      for (const auto& row : data) {
        for (int i = 0; i < length; ++i) expected[i] += row[i];
      }
      Communicators comms = MakeLocalCommunicators({Iota(size)});
      RunRanks(comms, [&](int rank, Communicator& comm) {
        EXPECT_EQ(comm.rank(), rank);
        EXPECT_EQ(comm.size(), size);
        EXPECT_TRUE(comm.AllReduceSum(absl::MakeSpan(data[rank])).ok());
      });
      for (const auto& row : data) EXPECT_EQ(row, expected);
    }
  }
}

TEST(LocalCommunicator, ManySumsInARow) {
  Communicators comms = MakeLocalCommunicators({Iota(4)});
  RunRanks(comms, [&](int rank, Communicator& comm) {
    for (int round = 0; round < 2000; ++round) {
      std::vector<float> data = {static_cast<float>(rank + round), 1};
      ASSERT_TRUE(comm.AllReduceSum(absl::MakeSpan(data)).ok());
      ASSERT_EQ(data[0], 6 + 4 * round);
      ASSERT_EQ(data[1], 4);
    }
  });
}

TEST(LocalCommunicator, StagesExchangeInOrder) {
  Communicators comms = MakeLocalCommunicators({Iota(2), Iota(2, 2)});
  RunRanks(comms, [&](int rank, Communicator& comm) {
    EXPECT_EQ(comm.rank(), rank % 2);
    if (rank < 2) {
      for (float x : {1.0f, 2.0f}) EXPECT_TRUE(comm.Send(rank + 2, {x + rank, x}).ok());
    } else {
      for (float x : {1.0f, 2.0f}) {
        std::vector<float> data(2);
        EXPECT_TRUE(comm.Recv(rank - 2, absl::MakeSpan(data)).ok());
        EXPECT_THAT(data, ElementsAre(x + rank - 2, x));
      }
    }
  });
}

TEST(LocalCommunicator, AGroupOfOneKeepsItsValues) {
  Communicators comms = MakeLocalCommunicators({{0}});
  std::vector<float> data = {1, std::nanf("")};
  EXPECT_TRUE(comms[0]->AllReduceSum(absl::MakeSpan(data)).ok());
  EXPECT_EQ(data[0], 1);
}

// Every kind of pending call returns Aborted soon after Abort on another rank.
TEST(LocalCommunicator, AbortEndsPendingCalls) {
  const std::function<Status(Communicator&)> calls[] = {
      [](Communicator& comm) {
        std::vector<float> data(100);
        return comm.AllReduceSum(absl::MakeSpan(data));
      },
      [](Communicator& comm) {
        std::vector<float> data(100);
        return comm.Recv(2, absl::MakeSpan(data));
      },
  };
  for (const auto& call : calls) {
    double best_ms = 1e9;  // of a few: a busy machine may hold up any one of them
    for (int round = 0; round < 5; ++round) {
      Communicators comms = MakeLocalCommunicators({Iota(2), {2}});
      std::atomic<bool> started = false;
      std::chrono::steady_clock::time_point returned;
      Status status;
      std::thread waiter([&] {
        started = true;
        status = call(*comms[0]);
        returned = std::chrono::steady_clock::now();
      });
      while (!started) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto begin = std::chrono::steady_clock::now();
      comms[2]->Abort();
      waiter.join();
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
      EXPECT_EQ(call(*comms[0]).code(), absl::StatusCode::kAborted);
      EXPECT_EQ(comms[1]->Send(0, {1}).code(), absl::StatusCode::kAborted);
      best_ms =
          std::min(best_ms, std::chrono::duration<double, std::milli>(returned - begin).count());
    }
    EXPECT_LT(best_ms, 5.0);
  }
}

TEST(LocalCommunicator, AbortAtARandomMomentLeavesNobodyBehind) {
  std::mt19937_64 random(TestSeed());
  for (int round = 0; round < 30; ++round) {
    Communicators comms = MakeLocalCommunicators({Iota(3)});
    const auto wait = std::chrono::microseconds(random() % 2000);
    std::thread aborter([&] {
      std::this_thread::sleep_for(wait);
      comms[1]->Abort();
    });
    RunRanks(comms, [&](int, Communicator& comm) {
      Status status;
      while (status.ok()) {
        std::vector<float> data(300, 1.0f);  // gone right after the call
        status = comm.AllReduceSum(absl::MakeSpan(data));
        if (status.ok()) {
          EXPECT_EQ(data[299], 3.0f);
        }
      }
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    });
    aborter.join();
  }
}

TEST(LocalCommunicator, InjectedFaultIsStickyOnItsRank) {
  Communicators comms = MakeLocalCommunicators({Iota(2)}, [](int rank, uint64_t call) -> Status {
    if (rank == 1 && call == 3) return absl::UnavailableError("the link is down");
    return absl::OkStatus();
  });
  RunRanks(comms, [&](int rank, Communicator& comm) {
    std::vector<float> data = {1};
    int sums = 0;
    Status status;
    while ((status = comm.AllReduceSum(absl::MakeSpan(data))).ok()) ++sums;
    EXPECT_EQ(sums, 3);
    if (rank == 1) {
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_EQ(comm.AllReduceSum(absl::MakeSpan(data)).code(), absl::StatusCode::kUnavailable);
      comm.Abort();
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    }
  });
}

TEST(LocalCommunicator, CallsThatDoNotFitTogetherEndTheEpoch) {
  Communicators comms = MakeLocalCommunicators({Iota(2)});
  RunRanks(comms, [&](int rank, Communicator& comm) {
    std::vector<float> data(rank + 1);
    EXPECT_FALSE(comm.AllReduceSum(absl::MakeSpan(data)).ok());
    EXPECT_FALSE(comm.AllReduceSum(absl::MakeSpan(data)).ok());
  });
  comms = MakeLocalCommunicators({Iota(2)});
  EXPECT_EQ(comms[0]->Send(0, {1}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(comms[1]->Send(0, {1}).code(), absl::StatusCode::kAborted);
}

}  // namespace
}  // namespace staffel
