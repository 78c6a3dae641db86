// Threads for JSON, templates and tokenizing, so that a huge request blocks neither the sockets nor
// the engine.
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
  // `thread_count` >= 1.
  explicit TaskPool(int thread_count);
  // Runs what was posted, then joins.
  ~TaskPool() override;
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Any thread. Tasks start in the order of posting. A task that throws is logged; the thread
  // lives.
  void Post(std::function<void()> task) override;

 private:
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;  // guarded by mutex_
  bool ending_ = false;                      // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace staffel
