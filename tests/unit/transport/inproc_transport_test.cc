#include "transport/inproc/inproc_transport.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include <chrono>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace staffel {
namespace {

// Collects outcomes; waits for a number of them.
class Collector {
 public:
  std::function<void(StepOutcome)> handler() {
    return [this](StepOutcome outcome) {
      std::lock_guard lock(mutex_);
      steps_.push_back(outcome.step);
      thread_ = std::this_thread::get_id();
      changed_.notify_all();
    };
  }
  std::vector<uint64_t> WaitFor(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(20), [&] { return steps_.size() >= count; });
    return steps_;
  }
  std::thread::id thread() {
    std::lock_guard lock(mutex_);
    return thread_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> steps_;
  std::thread::id thread_;
};

StepPlan Plan(uint64_t step) {
  StepPlan plan;
  plan.step = step;
  return plan;
}

StepOutcome Answer(const StepPlan& plan) {
  StepOutcome outcome;
  outcome.step = plan.step;
  return outcome;
}

// A gate that the worker waits at.
struct Gate {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  void Open() {
    std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
  void Pass() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return open; });
  }
};

TEST(InprocTransport, OutcomesComeInOrderOnOneOtherThread) {
  Collector collector;
  InprocTransport transport(Answer);
  transport.SetOutcomeHandler(collector.handler());
  std::vector<uint64_t> expected;
  for (uint64_t step = 1; step <= 1000; ++step) {
    while (!transport.Submit(Plan(step)).ok()) std::this_thread::yield();
    expected.push_back(step);
  }
  EXPECT_EQ(collector.WaitFor(1000), expected);
  EXPECT_NE(collector.thread(), std::this_thread::get_id());
}

TEST(InprocTransport, SeveralPlansAreInFlightUpToALimit) {
  Collector collector;
  auto gate = std::make_shared<Gate>();
  InprocTransport transport([gate](const StepPlan& plan) {
    gate->Pass();
    return Answer(plan);
  });
  transport.SetOutcomeHandler(collector.handler());
  for (int i = 1; i <= InprocTransport::kInFlightMax; ++i) {
    EXPECT_TRUE(transport.Submit(Plan(i)).ok());
  }
  EXPECT_EQ(transport.Submit(Plan(99)).code(), absl::StatusCode::kResourceExhausted);
  gate->Open();
  EXPECT_EQ(collector.WaitFor(InprocTransport::kInFlightMax).size(),
            static_cast<size_t>(InprocTransport::kInFlightMax));
  EXPECT_TRUE(transport.Submit(Plan(100)).ok());
}

TEST(InprocTransport, TheHandlerMaySubmitTheNextPlan) {
  Collector collector;
  InprocTransport transport(Answer);
  auto collect = collector.handler();
  transport.SetOutcomeHandler([&](StepOutcome outcome) {
    if (outcome.step < 100) {
      EXPECT_TRUE(transport.Submit(Plan(outcome.step + 1)).ok());
    }
    collect(std::move(outcome));
  });
  ASSERT_TRUE(transport.Submit(Plan(1)).ok());
  EXPECT_EQ(collector.WaitFor(100).size(), 100u);
}

TEST(InprocTransport, DestructionWaitsForTheRunningPlanAndDropsTheRest) {
  std::atomic<int> runs = 0, outcomes = 0;
  auto gate = std::make_shared<Gate>();
  std::thread opener;
  {
    InprocTransport transport([&, gate](const StepPlan& plan) {
      ++runs;
      gate->Pass();
      return Answer(plan);
    });
    transport.SetOutcomeHandler([&](StepOutcome) { ++outcomes; });
    for (int i = 1; i <= 10; ++i) ASSERT_TRUE(transport.Submit(Plan(i)).ok());
    while (runs == 0) std::this_thread::yield();
    opener = std::thread([gate] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate->Open();
    });
  }
  opener.join();
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(outcomes, 1);
}

TEST(InprocTransport, IdleTransportSleeps) {
  InprocTransport transport(Answer);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::clock_t before = std::clock();  // CPU time of the process
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  const double cpu_ms = 1e3 * (std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(cpu_ms, 20);
}

TEST(InprocTransport, RoundTripTakesMicroseconds) {
  Collector collector;
  InprocTransport transport(Answer);
  std::atomic<uint64_t> last = 0;
  transport.SetOutcomeHandler([&](StepOutcome outcome) { last = outcome.step; });
  double best_us = 1e9;
  for (uint64_t step = 1; step <= 200; ++step) {
    auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(transport.Submit(Plan(step)).ok());
    while (last != step) std::this_thread::yield();
    std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
    best_us = std::min(best_us, us.count());
  }
  RecordProperty("best_us", std::to_string(best_us));
  std::cout << "best round trip: " << best_us << " us\n";
  EXPECT_LT(best_us, 200);
}

}  // namespace
}  // namespace staffel
