#include "engine/engine.h"

#include <gtest/gtest.h>

#include <deque>

namespace staffel {
namespace {

class ManualClock final : public Clock {
 public:
  Time Now() const override { return now; }
  Time now = Time(std::chrono::seconds(100));
};

// Answers every chunk that samples with token 7, when the test says so.
class ScriptedTransport final : public Transport {
 public:
  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override { handler_ = handler; }
  Status Submit(StepPlan plan) override {
    if (!submit_status.ok()) return submit_status;
    plans.push_back(std::move(plan));
    return absl::OkStatus();
  }
  void Answer(Status status = absl::OkStatus()) {
    StepOutcome outcome{.epoch = plans.front().epoch, .step = plans.front().step, .status = status};
    for (const Chunk& chunk : plans.front().chunks) {
      if (chunk.samples) outcome.sampled.push_back({.slot = chunk.slot, .token = {.token = 7}});
    }
    plans.pop_front();
    handler_(std::move(outcome));
  }
  std::deque<StepPlan> plans;
  Status submit_status;

 private:
  std::function<void(StepOutcome)> handler_;
};

class Recorder final : public EventSink {
 public:
  void OnEvent(const SeqEvent& event) override { events.push_back(event); }
  std::vector<SeqEvent> events;
};

TEST(Engine, ServesARequest) {
  ManualClock clock;
  ScriptedTransport transport;
  EngineOptions options;
  options.scheduler.block_count = 8;
  options.scheduler.max_model_len = 64;
  options.vocab_size = 100;
  options.check_invariants = true;
  auto engine = Engine::Create(options, &transport, &clock);
  ASSERT_TRUE(engine.ok()) << engine.status();
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(
      (*engine)->Submit({.id = RequestId(1), .prompt = {1, 2, 3}, .max_tokens = 2}, sink).ok());
  while ((*engine)->Turn() || !transport.plans.empty()) {
    if (!transport.plans.empty()) transport.Answer();
  }
  ASSERT_EQ(sink->events.size(), 2u);
  EXPECT_EQ(sink->events[1].finish, FinishReason::kLength);
  EXPECT_EQ((*engine)->stats().blocks_free, 8);
}

}  // namespace
}  // namespace staffel
