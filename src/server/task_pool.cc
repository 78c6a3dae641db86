#include "server/task_pool.h"

#include <exception>
#include <utility>

#include "base/check.h"
#include "spdlog/spdlog.h"

namespace staffel {

TaskPool::TaskPool(int thread_count) {
  STAFFEL_CHECK_GE(thread_count, 1);
  for (int i = 0; i < thread_count; i++) threads_.emplace_back([this] { Run(); });
}

TaskPool::~TaskPool() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void TaskPool::Post(std::function<void()> task) {
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void TaskPool::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    try {
      task();
    } catch (const std::exception& error) {
      spdlog::error("A server task threw: {}", error.what());
    }
    task = nullptr;  // what it captured goes before the lock is held again
    lock.lock();
  }
}

}  // namespace staffel
