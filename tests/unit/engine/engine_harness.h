// An engine that the test turns, with a clock and workers that do what the test says.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace staffel {

class ManualClock final : public Clock {
 public:
  Time Now() const override { return now; }
  Time now = Time(std::chrono::seconds(100));
};

// Answers every chunk that samples with token 7, when the test says so.
class ScriptedTransport final : public Transport {
 public:
  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override {
    handler_ = std::move(handler);
  }
  Status Submit(StepPlan plan) override {
    if (!submit_status.ok()) return submit_status;
    plans.push_back(std::move(plan));
    return absl::OkStatus();
  }
  StepOutcome OutcomeOf(const StepPlan& plan) {
    StepOutcome outcome{.epoch = plan.epoch, .step = plan.step, .compute_s = 0.001};
    for (const Chunk& chunk : plan.chunks) {
      if (chunk.samples) outcome.sampled.push_back({.slot = chunk.slot, .token = {.token = 7}});
    }
    return outcome;
  }
  void Answer(Status status = absl::OkStatus()) {
    StepOutcome outcome = OutcomeOf(plans.front());
    outcome.status = std::move(status);
    plans.pop_front();
    Deliver(std::move(outcome));
  }
  void Deliver(StepOutcome outcome) { handler_(std::move(outcome)); }

  std::deque<StepPlan> plans;
  Status submit_status;

 private:
  std::function<void(StepOutcome)> handler_;
};

class Recorder final : public EventSink {
 public:
  void OnEvent(const SeqEvent& event) override { events.push_back(event); }
  int tokens() const {
    int count = 0;
    for (const SeqEvent& event : events) count += static_cast<int>(event.tokens.size());
    return count;
  }
  std::vector<FinishReason> ends() const {
    std::vector<FinishReason> reasons;
    for (const SeqEvent& event : events) {
      if (event.finish.has_value()) reasons.push_back(*event.finish);
    }
    return reasons;
  }
  std::vector<SeqEvent> events;
};

inline EngineOptions SmallOptions() {
  EngineOptions options;
  options.scheduler.block_count = 64;
  options.scheduler.block_size = 4;
  options.scheduler.max_model_len = 200;
  options.scheduler.max_sequences = 4;
  options.vocab_size = 100;
  options.max_queue = 8;
  options.check_invariants = true;
  return options;
}

class EngineTest : public testing::Test {
 protected:
  void Make(EngineOptions options = SmallOptions()) {
    auto made = Engine::Create(std::move(options), &transport, &clock);
    ASSERT_TRUE(made.ok()) << made.status();
    engine = *std::move(made);
  }
  std::shared_ptr<Recorder> Submit(int prompt = 4, int max_tokens = 3, int n = 1) {
    auto sink = std::make_shared<Recorder>();
    GenerateRequest request{.id = RequestId(++last_id), .n = n, .max_tokens = max_tokens};
    for (int i = 0; i < prompt; ++i)
      request.prompt.push_back((static_cast<int>(last_id) * 7 + i) % 100);
    last_status = engine->Submit(std::move(request), sink);
    return sink;
  }
  void RunToRest() {
    while (engine->Turn() || !transport.plans.empty()) {
      if (!transport.plans.empty()) transport.Answer();
    }
  }

  ManualClock clock;
  ScriptedTransport transport;
  std::unique_ptr<Engine> engine;
  uint64_t last_id = 0;
  Status last_status;
};

}  // namespace staffel
