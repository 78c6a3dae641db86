// A worker in this process: plans go to its own thread through a queue, outcomes come back by a
// call on that thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "staffel/status.h"
#include "staffel/transport.h"

namespace staffel {

class InprocTransport final : public Transport {
 public:
  // Plans that may wait or run at once. An engine has as many in flight as the pipeline is deep,
  // plus one; more means that it has lost count.
  static constexpr int kInFlightMax = 64;

  // `run` computes one plan; it is called on the transport's thread only, in order of Submit.
  explicit InprocTransport(std::function<StepOutcome(const StepPlan&)> run);
  // Waits for the running plan; drops those that wait behind it. No outcome is reported once this
  // has returned.
  ~InprocTransport() override;

  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override;
  // Any thread. ResourceExhausted: kInFlightMax plans are on their way.
  Status Submit(StepPlan plan) override;

 private:
  void Work();
  bool WaitForPlan(StepPlan& plan);

  const std::function<StepOutcome(const StepPlan&)> run_;
  std::function<void(StepOutcome)> handler_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StepPlan> queue_;  // guarded by mutex_
  bool stop_ = false;           // guarded by mutex_
  // Changes of queue_ and stop_, less the plans taken; 0 when there is nothing to do, but for a
  // moment's delay. Read while spinning, without the mutex.
  std::atomic<int> waiting_ = 0;
  std::atomic<int> in_flight_ = 0;  // plans submitted and not yet reported
  std::thread thread_;              // last: starts when all else is there
};

}  // namespace staffel
