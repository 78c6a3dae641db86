// The worker processes of `staffel serve --tp N --pp N`: started from this binary, watched, and
// started again when they end.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "staffel/clock.h"
#include "staffel/status.h"

namespace staffel {

struct LocalWorkerOptions {
  int count = 1;
  std::string master;              // what they are to connect to: --master
  std::string token;               // handed over by environment, which other users cannot read
  std::vector<std::string> flags;  // of `staffel worker`, the same for all
};

class LocalWorkers {
 public:
  // Starts them and a thread that watches. NotFound, Unavailable: this program's binary cannot be
  // run, or the system has no process left; none runs then.
  static Result<std::unique_ptr<LocalWorkers>> Start(LocalWorkerOptions options);
  // Ends them: SIGTERM, and SIGKILL for those that are still there after a second.
  ~LocalWorkers();
  LocalWorkers(const LocalWorkers&) = delete;
  LocalWorkers& operator=(const LocalWorkers&) = delete;

 private:
  struct Process {
    int pid = -1;
    int pidfd = -1;
    int failures = 0;  // since it last lived for long
    Time started{}, restart_at{};
  };

  explicit LocalWorkers(LocalWorkerOptions options);
  void Watch();
  void WatchOn();
  Status Spawn(int index);
  void Reap(int index);
  int MillisecondsToNextStart() const;
  void EndAll();

  const LocalWorkerOptions options_;
  std::vector<Process> processes_;  // of the watching thread
  int stop_fd_ = -1;
  std::promise<Status> started_;
  std::thread thread_;
};

}  // namespace staffel
