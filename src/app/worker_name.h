// The name of a worker that was given none: the same after every restart, unlike those of the other
// workers of its host, so that a master that has known it knows it again.
#pragma once

#include <string>

namespace staffel {

// Held for the life of the process: another worker of the same cache folder gets another name.
class WorkerName {
 public:
  // HOST and eight hex digits, which stand in the first file `worker-N.name` of `cache_dir` that no
  // other process holds; made up where there is none. Where nothing can be written there: HOST, the
  // process and the time of its start.
  explicit WorkerName(const std::string& cache_dir);
  ~WorkerName();
  WorkerName(const WorkerName&) = delete;
  WorkerName& operator=(const WorkerName&) = delete;

  const std::string& text() const { return text_; }

 private:
  int fd_ = -1;  // its lock is the seat
  std::string text_;
};

}  // namespace staffel
