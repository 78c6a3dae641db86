// SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once.
#pragma once

#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "staffel/clock.h"

namespace staffel {

// What a stop signal means. `timeout`, shells and container runtimes may deliver one wish twice, to
// the process and to its group, within microseconds; people are slower.
class StopRule {
 public:
  static constexpr Duration kSameWish = std::chrono::milliseconds(20);
  enum class Answer { kAsk, kRepeat, kEndAtOnce };
  Answer At(Time now);

 private:
  std::optional<Time> first_;
};

class StopSignals {
 public:
  // Blocks both signals in the calling thread, and so in all threads that it starts from now on:
  // construct before the first of them.
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // While on (as at first), the first signal ends the process too, with exit code 0: there is
  // nothing to finish yet.
  void EndAtFirst(bool on);

  // Any thread: asks for an end as a signal would.
  void Request(std::string reason);
  // Waits until an end is asked for, at most `timeout`; why it is, or "".
  std::string Wait(Duration timeout);

 private:
  void Watch();
  bool end_at_first();

  int signal_fd_ = -1, end_fd_ = -1;
  std::mutex mutex_;
  std::condition_variable asked_;
  std::string reason_;        // guarded by mutex_
  bool end_at_first_ = true;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace staffel
