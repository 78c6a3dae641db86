// Threads for JSON, templates and tokenizing, so that a huge request blocks neither the sockets nor
// the engine; and one that makes the text of running streams, so that neither blocks those.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "server/http.h"

namespace staffel {

class TaskPool final : public TaskRunner {
 public:
  // `thread_count` (>= 1) threads for all tasks, short ones first, and one more for short ones.
  explicit TaskPool(int thread_count);
  // Runs what was posted, then joins.
  ~TaskPool() override;
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Any thread. A task that throws is logged; the thread lives.
  void Post(std::function<void()> task) override;
  void PostShort(std::function<void()> task) override;
  void WakeForShort() override;

 private:
  using Tasks = std::deque<std::function<void()>>;
  // Threads that take the same tasks.
  struct Group {
    std::condition_variable wake;
    int asleep = 0;
  };

  void Run(Group& group);
  // With the lock held. Null: the group has nothing to do.
  Tasks* Next(const Group& group);
  Group* GroupToWake();
  void RunTask(std::unique_lock<std::mutex>& lock, Tasks& tasks);

  std::mutex mutex_;
  // Guarded by mutex_:
  Tasks tasks_, short_tasks_;
  Group all_, short_only_;
  // A thread was woken for a short task and none has been taken since: who takes one wakes the next
  // thread, and whoever posts them pays for one wake-up.
  bool waking_ = false;
  bool ending_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace staffel
