#include "server/task_pool.h"

#include <atomic>
#include <future>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace staffel {
namespace {

TEST(TaskPool, RunsEverythingBeforeItEnds) {
  std::atomic<int> done = 0;
  {
    TaskPool pool(3);
    for (int i = 0; i < 1000; i++) pool.Post([&] { done++; });
  }
  EXPECT_EQ(done, 1000);
}

TEST(TaskPool, OneThreadKeepsTheOrder) {
  std::vector<int> order;
  {
    TaskPool pool(1);
    for (int i = 0; i < 100; i++) pool.Post([&, i] { order.push_back(i); });
  }
  for (int i = 0; i < 100; i++) EXPECT_EQ(order[i], i);
}

TEST(TaskPool, ABlockedTaskDoesNotHoldTheOthers) {
  TaskPool pool(2);
  std::promise<void> release, other;
  pool.Post([&] { release.get_future().get(); });
  pool.Post([&] { other.set_value(); });
  other.get_future().get();
  release.set_value();
}

TEST(TaskPool, ShortTasksDoNotWaitForOthers) {
  std::promise<void> release[2], short_done;
  TaskPool pool(2);
  for (auto& promise : release) pool.Post([&] { promise.get_future().get(); });
  pool.PostShort([&] { short_done.set_value(); });
  pool.WakeForShort();
  short_done.get_future().get();
  for (auto& promise : release) promise.set_value();
}

TEST(TaskPool, ShortTasksOvertake) {
  std::string order;
  std::promise<void> busy[2], release[2];
  const auto block = [&](int i) {
    busy[i].set_value();
    release[i].get_future().get();
  };
  {
    TaskPool pool(1);
    pool.Post([&] { block(0); });
    busy[0].get_future().get();
    pool.PostShort([&] { block(1); });
    pool.WakeForShort();
    busy[1].get_future().get();  // now both threads are busy
    pool.Post([&] { order += 'l'; });
    pool.PostShort([&] { order += 's'; });
    release[0].set_value();  // the thread for all tasks goes on
    pool.PostShort([&] { release[1].set_value(); });
  }
  EXPECT_EQ(order, "sl");
}

TEST(TaskPool, OneWakeUpIsEnoughForManyShortTasks) {
  // Tasks that wait for each other need all threads, whoever was woken first.
  for (int round = 0; round < 200; round++) {
    std::latch together(4);
    TaskPool pool(3);
    for (int i = 0; i < 4; i++) pool.PostShort([&] { together.arrive_and_wait(); });
    pool.WakeForShort();
    together.wait();
  }
}

TEST(TaskPool, ManyPostersOfBothKinds) {
  std::atomic<int> done = 0;
  {
    TaskPool pool(2);
    std::vector<std::thread> posters;
    for (int p = 0; p < 4; p++) {
      posters.emplace_back([&] {
        for (int i = 0; i < 2000; i++) {
          if (i % 3 == 0) {
            pool.Post([&] { done++; });
          } else {
            pool.PostShort([&] { done++; });
            pool.WakeForShort();
          }
          if (i % 50 == 0) std::this_thread::yield();
        }
      });
    }
    for (std::thread& poster : posters) poster.join();
  }
  EXPECT_EQ(done, 4 * 2000);
}

TEST(TaskPool, SurvivesAThrowingTask) {
  std::promise<void> after;
  TaskPool pool(1);
  pool.Post([] { throw std::runtime_error("task"); });
  pool.Post([&] { after.set_value(); });
  after.get_future().get();
}

TEST(TaskPool, TasksMayPostTasks) {
  TaskPool pool(1);
  std::promise<void> inner;
  pool.Post([&] { pool.Post([&] { inner.set_value(); }); });
  inner.get_future().get();
}

}  // namespace
}  // namespace staffel
