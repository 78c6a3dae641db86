#include "server/task_pool.h"

#include <exception>
#include <utility>

#include "base/check.h"
#include "base/thread.h"
#include "spdlog/spdlog.h"

namespace staffel {

TaskPool::TaskPool(int thread_count) {
  STAFFEL_CHECK_GE(thread_count, 1);
  threads_.emplace_back([this] { Run(short_only_); });
  for (int i = 0; i < thread_count; i++) threads_.emplace_back([this] { Run(all_); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  all_.wake.notify_all();
  short_only_.wake.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  all_.wake.notify_one();
}

void TaskPool::PostShort(std::function<void()> task) {
  std::lock_guard lock(mutex_);
  short_tasks_.push_back(std::move(task));
}

void TaskPool::WakeForShort() {
  Group* group;
  {
    std::lock_guard lock(mutex_);
    group = GroupToWake();
  }
  if (group != nullptr) group->wake.notify_one();
}

TaskPool::Group* TaskPool::GroupToWake() {
  if (waking_ || short_tasks_.empty()) return nullptr;
  Group* group = short_only_.asleep > 0 ? &short_only_ : all_.asleep > 0 ? &all_ : nullptr;
  waking_ = group != nullptr;
  return group;
}

TaskPool::Tasks* TaskPool::Next(const Group& group) {
  if (!short_tasks_.empty()) return &short_tasks_;
  if (&group == &all_ && !tasks_.empty()) return &tasks_;
  return nullptr;
}

void TaskPool::Run(Group& group) {
  NameThread(&group == &short_only_ ? "stream" : "task");
  PreferShortSlices();
  std::unique_lock lock(mutex_);
  while (true) {
    Tasks* tasks = Next(group);
    if (tasks != nullptr) {
      RunTask(lock, *tasks);
      continue;
    }
    if (ending_) return;
    group.asleep++;
    group.wake.wait(lock);
    group.asleep--;
  }
}

void TaskPool::RunTask(std::unique_lock<std::mutex>& lock, Tasks& tasks) {
  std::function<void()> task = std::move(tasks.front());
  tasks.pop_front();
  Group* next = nullptr;
  if (&tasks == &short_tasks_) {
    waking_ = false;
    next = GroupToWake();
  }
  lock.unlock();
  if (next != nullptr) next->wake.notify_one();
  try {
    task();
  } catch (const std::exception& error) {
    spdlog::error("A server task threw: {}", error.what());
  }
  task = nullptr;  // what it captured goes before the lock is held again
  lock.lock();
}

}  // namespace staffel
