#include "server/task_pool.h"

#include <atomic>
#include <future>
#include <stdexcept>

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
