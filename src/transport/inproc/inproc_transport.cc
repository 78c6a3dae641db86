#include "transport/inproc/inproc_transport.h"

#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "base/thread.h"

namespace staffel {
InprocTransport::InprocTransport(std::function<StepOutcome(const StepPlan&)> run)
    : run_(std::move(run)), thread_([this] { Work(); }) {}

InprocTransport::~InprocTransport() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_one();
  thread_.join();
}

void InprocTransport::SetOutcomeHandler(std::function<void(StepOutcome)> handler) {
  std::lock_guard lock(mutex_);
  handler_ = std::move(handler);
}

Status InprocTransport::Submit(StepPlan plan) {
  if (in_flight_.fetch_add(1) >= kInFlightMax) {
    in_flight_.fetch_sub(1);
    return absl::ResourceExhaustedError(
        StrCat(kInFlightMax, " plans are in flight already; wait for their outcomes"));
  }
  {
    std::lock_guard lock(mutex_);
    STAFFEL_CHECK(handler_ != nullptr) << "set the outcome handler before the first plan";
    queue_.push_back(std::move(plan));
  }
  // After the lock is free: a spinning worker takes it at once, and would sleep if it were held.
  waiting_.fetch_add(1, std::memory_order_release);
  changed_.notify_one();
  return absl::OkStatus();
}

void InprocTransport::Work() {
  NameThread("worker");
  StepPlan plan;
  while (WaitForPlan(plan)) {
    StepOutcome outcome = run_(plan);
    in_flight_.fetch_sub(1);
    handler_(std::move(outcome));
  }
}

// False: the transport ends.
bool InprocTransport::WaitForPlan(StepPlan& plan) {
  SpinWhileZero(waiting_);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
  if (stop_) return false;
  plan = std::move(queue_.front());
  queue_.pop_front();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  return true;
}

}  // namespace staffel
