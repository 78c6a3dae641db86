#include "device/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace staffel {
namespace {

TEST(ThreadPool, RunsEveryPieceOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (int pieces : {0, 1, 2, 3, 7, 64, 1000}) {
      std::vector<int> runs(pieces, 0);  // plain: a piece runs on one thread only
      pool.Run(pieces, [&](int piece, int worker) {
        ASSERT_GE(worker, 0);
        ASSERT_LT(worker, threads);
        ++runs[piece];
      });
      EXPECT_EQ(std::accumulate(runs.begin(), runs.end(), 0), pieces);
      for (int n : runs) EXPECT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, SharesAreContiguousAndCoverAll) {
  ThreadPool pool(3);
  EXPECT_EQ(pool.ShareBegin(10, 0), 0);
  EXPECT_EQ(pool.ShareBegin(10, 1), 3);
  EXPECT_EQ(pool.ShareBegin(10, 2), 6);
  EXPECT_EQ(pool.ShareBegin(10, 3), 10);
}

// Regions follow one another at once; each must see what the one before wrote, and the caller all
// of it. Under ThreadSanitizer this is the test of the pool's ordering.
TEST(ThreadPool, RegionsAreOrdered) {
  for (int threads : {2, 4}) {
    ThreadPool pool(threads);
    std::vector<int64_t> a(97, 1), b(97, 0);
    for (int round = 0; round < 2000; ++round) {
      pool.Run(97, [&](int i, int) { b[i] = a[i] + a[(i + 1) % 97]; });
      int64_t sum = 0;
      for (int64_t value : b) sum += value;
      ASSERT_EQ(sum, 194) << "round " << round;
      pool.Run(13, [&](int piece, int) {
        for (int i = piece; i < 97; i += 13) a[i] = b[i] - a[i];
      });
      std::fill(a.begin(), a.end(), 1);
    }
  }
}

// Pauses longer than the spin put the workers to sleep; the next region must wake them.
TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3, /*spin_us=*/1);
  for (int round = 0; round < 200; ++round) {
    if (round % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::atomic<int> runs = 0;
    pool.Run(3, [&](int, int) {
      ++runs;
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    });
    ASSERT_EQ(runs, 3);
  }
}

TEST(ThreadPool, AnIdlePoolUsesNoCpu) {
  ThreadPool pool(4);
  pool.Run(4, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  auto cpu_s = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  };
  const double before = cpu_s();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LT(cpu_s() - before, 0.02);
}

// One worker holds a long piece: the others' work is done meanwhile, not after.
TEST(ThreadPool, OthersTakeOverTheShareOfASlowWorker) {
  ThreadPool pool(2);
  std::atomic<int> by_worker[2] = {};
  std::atomic<bool> slow_started = false;
  pool.Run(100, [&](int piece, int worker) {
    if (worker == 1 && !slow_started.exchange(true)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ++by_worker[worker];
  });
  EXPECT_EQ(by_worker[0] + by_worker[1], 100);
  if (slow_started) {
    EXPECT_GT(by_worker[0], 60);
  }
}

// More threads than cores, as when a neighbour takes cores away: slower, but it goes on.
TEST(ThreadPool, SurvivesMoreThreadsThanCores) {
  ThreadPool pool(16);
  std::atomic<int64_t> sum = 0;
  for (int round = 0; round < 300; ++round) pool.Run(32, [&](int i, int) { sum += i; });
  EXPECT_EQ(sum, 300 * (31 * 32 / 2));
}

TEST(UsableCores, IsWithinTheAffinityMask) {
  const int cores = UsableCores();
  EXPECT_GE(cores, 1);
  std::thread([&] {  // the mask of a thread of its own
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    EXPECT_LE(cores, CPU_COUNT(&all));
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_SET(cpu, &one);
      break;
    }
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(UsableCores(), 1);
  })
      .join();
}

}  // namespace
}  // namespace staffel
