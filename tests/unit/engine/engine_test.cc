#include "engine/engine.h"

#include <gtest/gtest.h>

#include <ctime>
#include <deque>
#include <string>
#include <thread>

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class ManualClock final : public Clock {
 public:
  Time Now() const override { return now; }
  Time now = Time(seconds(100));
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

EngineOptions SmallOptions() {
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

TEST_F(EngineTest, ServesARequest) {
  Make();
  auto sink = Submit(4, 3);
  RunToRest();
  EXPECT_EQ(sink->tokens(), 3);
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kLength});
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.blocks_free + stats.blocks_cached, 64);
  EXPECT_EQ(stats.running + stats.waiting, 0);
  EXPECT_EQ(stats.steps, 3u);
  EXPECT_DOUBLE_EQ(stats.compute_s, 0.003);
}

TEST_F(EngineTest, AtRestThereIsNothingToDo) {
  Make();
  EXPECT_FALSE(engine->Turn());
  Submit(4, 1);
  RunToRest();
  EXPECT_FALSE(engine->Turn());
  EXPECT_EQ(engine->stats().last_step_age_s, 0);
}

TEST_F(EngineTest, RefusalsNameTheLimit) {
  Make();
  const auto refusal = [&](GenerateRequest request) {
    request.id = RequestId(999);
    const Status status = engine->Submit(std::move(request), std::make_shared<Recorder>());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({}), "the prompt is empty; send at least one token");
  EXPECT_EQ(refusal({.prompt = std::vector<TokenId>(200, 1)}),
            "the prompt has 200 tokens; the context holds 200 of prompt and answer, so shorten it");
  EXPECT_EQ(refusal({.prompt = {5, 100}}),
            "token 1 of the prompt is 100; the vocabulary has 100 tokens");
  EXPECT_EQ(refusal({.prompt = {-1}}),
            "token 0 of the prompt is -1; the vocabulary has 100 tokens");
  EXPECT_EQ(refusal({.prompt = {1}, .stop_tokens = {101}}),
            "token 0 of the stop tokens is 101; the vocabulary has 100 tokens");
  GenerateRequest biased{.prompt = {1}};
  biased.sampling.logit_bias = {{.token = 100, .bias = 1}};
  EXPECT_EQ(refusal(biased), "logit_bias names token 100; the vocabulary has 100 tokens");
  EXPECT_EQ(refusal({.prompt = {1}, .n = 9}), "n is 9; at most 8 sequences can be queued");
}

TEST_F(EngineTest, AFullQueueIsSaidAtOnce) {
  Make();
  int accepted = 0;
  for (int i = 0; i < 50; ++i) {
    Submit(4, 3);
    accepted += last_status.ok();
  }
  EXPECT_EQ(accepted, 8);
  EXPECT_EQ(last_status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(last_status.message(),
            "8 sequences are waiting and the queue holds 8; try again later");
  EXPECT_EQ(engine->stats().waiting, 8);
  engine->Turn();  // four run now
  EXPECT_EQ(engine->stats().waiting, 4);
  for (int i = 0; i < 4; ++i) {
    Submit(4, 3);
    EXPECT_TRUE(last_status.ok());
  }
  Submit(4, 3);
  EXPECT_FALSE(last_status.ok());
  RunToRest();
  EXPECT_EQ(engine->stats().finished_length, 12u);
}

TEST_F(EngineTest, AnEmptyQueueTakesAnyRequestAFullOneRefusesAtOnce) {
  EngineOptions options = SmallOptions();
  options.max_queue = 2;
  Make(options);
  auto wide = std::make_shared<Recorder>();
  EXPECT_TRUE(engine->Submit({.id = RequestId(100), .prompt = {1}, .n = 3}, wide).ok());
  Submit(4, 3);
  EXPECT_EQ(last_status.code(), absl::StatusCode::kResourceExhausted) << "three wait already";
  RunToRest();
  Submit(4, 3);
  EXPECT_TRUE(last_status.ok());
  Submit(4, 3);
  EXPECT_TRUE(last_status.ok());
  Submit(4, 3);
  EXPECT_EQ(last_status.code(), absl::StatusCode::kResourceExhausted);
  RunToRest();
  EXPECT_EQ(engine->stats().finished_length, 5u);
}

TEST_F(EngineTest, AnIdInUseIsRefusedAndFreeAfterTheEnd) {
  Make();
  auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(engine->Submit({.id = RequestId(5), .prompt = {1}}, sink).ok());
  EXPECT_EQ(engine->Submit({.id = RequestId(5), .prompt = {1}}, sink).message(),
            "request 5 exists already");
  RunToRest();
  EXPECT_TRUE(engine->Submit({.id = RequestId(5), .prompt = {1}}, sink).ok());
  RunToRest();
}

TEST_F(EngineTest, TransportAndClockMayEndBetweenStopAndTheEnginesEnd) {
  struct CountingClock final : Clock {
    Time Now() const override {
      ++reads;
      return Time();
    }
    mutable int reads = 0;
  } counting;
  auto made = Engine::Create(SmallOptions(), &transport, &counting);
  ASSERT_TRUE(made.ok());
  (*made)->Stop();
  const int reads = counting.reads;
  EXPECT_EQ((*made)->stats().running, 0);
  made->reset();
  EXPECT_EQ(counting.reads, reads) << "the clock was read after Stop";
}

TEST_F(EngineTest, CancelEndsWithinATurn) {
  Make();
  auto sink = Submit(4, 100);
  engine->Turn();
  transport.Answer();
  engine->Turn();
  engine->Cancel(RequestId(1));
  engine->Turn();
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kCancelled});
  RunToRest();
  EXPECT_EQ(engine->stats().blocks_free + engine->stats().blocks_cached, 64);
  engine->Cancel(RequestId(1));
  engine->Cancel(RequestId(12345));
  EXPECT_FALSE(engine->Turn()) << "unknown ids are ignored";
}

TEST_F(EngineTest, DepthKeepsThatManyStepsInFlight) {
  EngineOptions options = SmallOptions();
  options.depth = 3;
  Make(options);
  auto sink = Submit(4, 10);
  engine->Turn();
  EXPECT_EQ(transport.plans.size(), 3u);
  transport.Answer();
  engine->Turn();
  EXPECT_EQ(transport.plans.size(), 3u);
  RunToRest();
  EXPECT_EQ(sink->tokens(), 10);
}

TEST_F(EngineTest, AFailedStepEndsEverythingAndIsTold) {
  Make();
  auto first = Submit(4, 9, 2);
  engine->Turn();
  auto second = Submit(4, 9);
  transport.Answer(absl::DataLossError("the digest of the mirror differs"));
  engine->Turn();
  EXPECT_EQ(first->ends(), (std::vector<FinishReason>{FinishReason::kError, FinishReason::kError}));
  EXPECT_EQ(second->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_EQ(first->events.back().error.message(), "the digest of the mirror differs");
  EXPECT_EQ(engine->health().message(),
            "the model is not being served: the digest of the mirror differs");
  auto third = Submit();
  EXPECT_EQ(last_status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, ATransportThatRefusesAPlanIsALoss) {
  Make();
  transport.submit_status = absl::UnavailableError("rank 1 is gone");
  auto sink = Submit();
  engine->Turn();
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_FALSE(engine->health().ok());
}

TEST_F(EngineTest, AnOutcomeThatDoesNotFitIsALoss) {
  Make();
  auto sink = Submit();
  engine->Turn();
  StepOutcome outcome = transport.OutcomeOf(transport.plans.front());
  outcome.sampled.clear();
  transport.Deliver(outcome);
  engine->Turn();
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kError});
}

TEST_F(EngineTest, HealingKeepsRequestsUntilResume) {
  EngineOptions options = SmallOptions();
  options.heal = true;
  std::vector<std::string> losses;
  options.on_loss = [&](const Status& reason) { losses.emplace_back(reason.message()); };
  Make(options);
  auto sink = Submit(4, 5);
  engine->Turn();
  transport.Answer();
  engine->Turn();
  const StepPlan lost = transport.plans.front();
  transport.Answer(absl::UnavailableError("rank 1 is gone"));
  engine->Turn();
  EXPECT_EQ(losses, std::vector<std::string>{"rank 1 is gone"});
  EXPECT_FALSE(engine->health().ok());
  EXPECT_TRUE(sink->ends().empty());
  auto later = Submit(4, 2);
  EXPECT_TRUE(last_status.ok()) << "it waits for the workers";
  engine->Turn();
  EXPECT_TRUE(transport.plans.empty());
  engine->Resume({.epoch = 2, .block_count = 32});
  engine->Turn();
  EXPECT_TRUE(engine->health().ok());
  EXPECT_EQ(engine->limits().kv_capacity_tokens, 128);
  ASSERT_EQ(transport.plans.size(), 1u);
  EXPECT_EQ(transport.plans.front().epoch, 2);
  transport.Deliver(transport.OutcomeOf(lost));  // late, of the old epoch
  RunToRest();
  EXPECT_EQ(sink->tokens(), 5);
  EXPECT_EQ(later->tokens(), 2);
  EXPECT_EQ(engine->stats().losses, 1u);
  EXPECT_EQ(engine->stats().epoch, 2);
}

EngineOptions HealingOptions() {
  EngineOptions options = SmallOptions();
  options.heal = true;
  return options;
}

TEST_F(EngineTest, TheNextLayoutMayBeAPipelineAndNoneAgain) {
  EngineOptions options = HealingOptions();
  options.depth = 2;
  Make(options);
  auto a = Submit(4, 12), b = Submit(4, 12);
  engine->Turn();
  EXPECT_EQ(transport.plans.size(), 2u) << "planned ahead of the tokens";
  EXPECT_EQ(transport.plans[1].chunks.size(), 2u);
  transport.Answer();
  engine->Turn();
  transport.plans.clear();
  engine->ReportLoss(absl::UnavailableError("rank 1 is gone"));
  engine->Turn();
  engine->Resume({.epoch = 2, .block_count = 64, .stages = 2, .ranks = 2});
  int steps = 0, told = 0;
  while (engine->Turn() || !transport.plans.empty()) {
    EXPECT_LE(transport.plans.size(), 2u);
    if (a->tokens() > 6) break;
    for (const StepPlan& plan : transport.plans) {
      EXPECT_EQ(plan.epoch, 2);
      if (steps <= 2) continue;
      EXPECT_EQ(plan.chunks.size(), 1u) << "each stage has a stream";
    }
    told += static_cast<int>(transport.plans.back().known_tokens.size());
    ++steps;
    transport.Answer();
  }
  EXPECT_GT(told, 0);
  engine->Resume({.epoch = 3, .block_count = 64});
  transport.plans.clear();
  engine->Turn();
  EXPECT_EQ(transport.plans.size(), 2u);
  RunToRest();
  EXPECT_EQ(a->tokens(), 12);
  EXPECT_EQ(b->tokens(), 12);
}

TEST_F(EngineTest, WhenTheWaitHasRunOutRequestsEndAndTheEngineLivesOn) {
  Make(HealingOptions());
  auto running = Submit(4, 9);
  engine->Turn();
  engine->ReportLoss(absl::UnavailableError("rank 1 is gone"));
  engine->Turn();
  transport.plans.clear();
  auto queued = Submit(4, 9);
  engine->FailRequests(absl::UnavailableError("no worker for 60 s"));
  auto behind = Submit(4, 9);  // before the engine's thread has seen it
  engine->Turn();
  for (const auto& sink : {running, queued, behind}) {
    ASSERT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kError});
    EXPECT_EQ(sink->events.back().error.message(), "no worker for 60 s");
  }
  EXPECT_EQ(engine->health().message(), "the model is not being served: rank 1 is gone");
  Submit(4, 9);
  EXPECT_EQ(last_status.message(), "no worker for 60 s") << "there is no wait to queue for";
  EXPECT_FALSE(engine->Turn());
  EXPECT_TRUE(engine->WaitUntilIdle(clock.now));

  engine->Resume({.epoch = 2, .block_count = 64});
  engine->Turn();
  EXPECT_TRUE(engine->health().ok());
  auto after = Submit(4, 3);
  EXPECT_TRUE(last_status.ok());
  RunToRest();
  EXPECT_EQ(after->tokens(), 3);
  EXPECT_EQ(engine->stats().blocks_free + engine->stats().blocks_cached, 64);
}

TEST_F(EngineTest, FailRequestsWhileServingEndsThoseBefore) {
  Make(HealingOptions());
  auto before = Submit(4, 9);
  engine->Turn();
  auto queued = Submit(4, 9);
  engine->FailRequests(absl::UnavailableError("enough"));
  auto after = Submit(4, 3);
  EXPECT_TRUE(last_status.ok());
  RunToRest();
  EXPECT_EQ(before->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_EQ(queued->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_EQ(after->tokens(), 3);
  EXPECT_TRUE(engine->health().ok());
}

TEST_F(EngineTest, APlannedPauseIsNoLoss) {
  EngineOptions options = HealingOptions();
  int losses = 0;
  options.on_loss = [&](const Status&) { ++losses; };
  Make(options);
  auto sink = Submit(4, 5);
  engine->Turn();
  engine->Pause(absl::UnavailableError("a worker joins"));
  engine->Turn();
  EXPECT_EQ(engine->health().message(), "the model is not being served: a worker joins");
  transport.Answer();  // too late: the step is computed again
  engine->Turn();
  EXPECT_EQ(sink->tokens(), 0);
  clock.now += seconds(3);
  EXPECT_NEAR(engine->stats().paused_s, 3, 1e-9);
  engine->ReportLoss(absl::UnavailableError("and another is gone"));
  engine->Resume({.epoch = 1, .block_count = 8});
  engine->Turn();
  EXPECT_FALSE(engine->health().ok()) << "of an epoch that is over";
  clock.now += seconds(1);
  engine->Resume({.epoch = 7, .block_count = 64});
  engine->Turn();
  clock.now += seconds(1);
  RunToRest();
  EXPECT_EQ(sink->tokens(), 5);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(losses, 0);
  EXPECT_EQ(stats.losses, 0u);
  EXPECT_EQ(stats.resumes, 1u);
  EXPECT_EQ(stats.epoch, 7);
  EXPECT_EQ(stats.steps_in_flight, 0);
  EXPECT_NEAR(stats.paused_s, 4, 1e-9);
}

TEST_F(EngineTest, AReportedLossIsALoss) {
  Make();
  auto sink = Submit();
  engine->Turn();
  engine->ReportLoss(absl::UnavailableError("no heartbeat for 200 ms"));
  engine->Turn();
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kError});
}

TEST_F(EngineTest, DrainRefusesNewOnesAndFinishesTheOld) {
  Make();
  auto sink = Submit(4, 3);
  engine->Drain(clock.now + seconds(30));
  Submit();
  EXPECT_EQ(last_status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine->health().message(), "the server is shutting down");
  RunToRest();
  EXPECT_EQ(sink->tokens(), 3);
  EXPECT_TRUE(engine->WaitUntilIdle(clock.now));
}

TEST_F(EngineTest, TheDrainDeadlineEndsWhatIsLeft) {
  Make();
  auto sink = Submit(4, 100);
  engine->Turn();
  engine->Drain(clock.now + seconds(30));
  engine->Turn();
  EXPECT_TRUE(sink->ends().empty());
  EXPECT_FALSE(engine->WaitUntilIdle(clock.now));
  clock.now += seconds(31);
  engine->Turn();
  EXPECT_EQ(sink->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_EQ(sink->events.back().error.message(), "the server is shutting down");
}

TEST_F(EngineTest, StopEndsWhatRunsAndWhatIsQueued) {
  Make();
  auto running = Submit(4, 100);
  engine->Turn();
  auto queued = Submit(4, 100);
  engine->Stop();
  EXPECT_EQ(running->ends(), std::vector<FinishReason>{FinishReason::kError});
  EXPECT_EQ(queued->ends(), std::vector<FinishReason>{FinishReason::kError});
  Submit();
  EXPECT_EQ(last_status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(EngineTest, AnOutcomeAfterTheEngineIsGoneIsHarmless) {
  Make();
  Submit(4, 100);
  engine->Turn();
  engine.reset();
  transport.Answer();
}

TEST_F(EngineTest, HealthSeesAStepThatDoesNotEnd) {
  Make();
  Submit(4, 100);
  engine->Turn();
  clock.now += seconds(9);
  EXPECT_TRUE(engine->health().ok());
  clock.now += seconds(2);
  EXPECT_EQ(engine->health().message(),
            "work is waiting but no step has ended for 11 s; a worker may hang");
  EXPECT_NEAR(engine->stats().last_step_age_s, 11, 0.01);
  Submit(4, 100);
  engine->Turn();
  EXPECT_FALSE(engine->health().ok()) << "new requests are no progress";
  transport.Answer();
  engine->Turn();
  EXPECT_TRUE(engine->health().ok());
}

TEST_F(EngineTest, HealthSeesAnEngineThatDoesNotTurn) {
  Make();
  clock.now += seconds(1000);
  EXPECT_TRUE(engine->health().ok()) << "idle is no stall";
  Submit(4, 100);
  EXPECT_TRUE(engine->health().ok());
  clock.now += seconds(11);
  EXPECT_FALSE(engine->health().ok());
  RunToRest();
  EXPECT_TRUE(engine->health().ok());
}

TEST_F(EngineTest, AFloodIsTakenInPieces) {
  EngineOptions options = SmallOptions();
  options.max_queue = 100;
  options.submits_per_turn_max = 10;
  Make(options);
  for (int i = 0; i < 30; ++i) Submit(2, 1);
  engine->Turn();
  ASSERT_EQ(transport.plans.size(), 1u) << "a step goes out before all are taken";
  EXPECT_EQ(engine->stats().waiting, 26);
  RunToRest();
  EXPECT_EQ(engine->stats().finished_length, 30u);
}

TEST_F(EngineTest, OptionsThatCannotBeAreRefused) {
  EngineOptions options = SmallOptions();
  options.depth = 0;
  EXPECT_FALSE(Engine::Create(options, &transport, &clock).ok());
  options = SmallOptions();
  options.vocab_size = 0;
  EXPECT_FALSE(Engine::Create(options, &transport, &clock).ok());
}

// With its thread: a worker thread answers, many clients submit and cancel.
class ThreadTransport final : public Transport {
 public:
  ~ThreadTransport() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override {
    handler_ = std::move(handler);
    thread_ = std::thread([this] { Work(); });
  }
  Status Submit(StepPlan plan) override {
    std::lock_guard lock(mutex_);
    plans_.push_back(std::move(plan));
    wake_.notify_one();
    return absl::OkStatus();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [&] { return stop_ || !plans_.empty(); });
      if (stop_) return;
      StepOutcome outcome = answers_.OutcomeOf(plans_.front());
      plans_.pop_front();
      lock.unlock();
      handler_(std::move(outcome));
      lock.lock();
    }
  }
  ScriptedTransport answers_;
  std::function<void(StepOutcome)> handler_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<StepPlan> plans_;
  bool stop_ = false;
  std::thread thread_;
};

class CountingSink final : public EventSink {
 public:
  explicit CountingSink(std::atomic<int>* ends) : ends_(ends) {}
  void OnEvent(const SeqEvent& event) override {
    if (event.finish.has_value()) ++*ends_;
  }

 private:
  std::atomic<int>* ends_;
};

TEST(EngineThread, ManyClientsGetOneEndEach) {
  SystemClock clock;
  ThreadTransport transport;
  EngineOptions options = SmallOptions();
  options.max_queue = 40;
  options.depth = 2;
  auto engine = Engine::Create(options, &transport, &clock);
  ASSERT_TRUE(engine.ok());
  (*engine)->Start();
  std::atomic<int> ends{0}, accepted{0}, refused{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 200; ++i) {
        const RequestId id(static_cast<uint64_t>(c * 1000 + i + 1));
        const Status status =
            (*engine)->Submit({.id = id, .prompt = {c, i % 100, 3}, .max_tokens = i % 20},
                              std::make_shared<CountingSink>(&ends));
        (status.ok() ? accepted : refused)++;
        if (i % 3 == 0) (*engine)->Cancel(id);
        EXPECT_TRUE((*engine)->health().ok());
        EXPECT_LE((*engine)->stats().waiting, 44);
        if (!status.ok()) std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  ASSERT_TRUE((*engine)->WaitUntilIdle(clock.Now() + seconds(20)));
  EXPECT_EQ(ends, accepted);
  EXPECT_GT(accepted, 0);
  // Steps that were planned ahead give their blocks back when they end.
  const auto free_blocks = [&] {
    const EngineStats stats = (*engine)->stats();
    return stats.blocks_free + stats.blocks_cached;
  };
  const Time deadline = clock.Now() + seconds(20);
  while (free_blocks() != 64 && clock.Now() < deadline)
    std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(free_blocks(), 64);
  (*engine)->Stop();
}

TEST(EngineThread, IdleCostsNoCpu) {
  SystemClock clock;
  ThreadTransport transport;
  auto engine = Engine::Create(SmallOptions(), &transport, &clock);
  ASSERT_TRUE(engine.ok());
  (*engine)->Start();
  const auto cpu_ms = [] {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000.0 + t.tv_nsec / 1e6;
  };
  const double before = cpu_ms();
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_LT(cpu_ms() - before, 10);
}

TEST(EngineThread, StopWhileBusyEndsEverything) {
  SystemClock clock;
  ThreadTransport transport;
  auto engine = Engine::Create(SmallOptions(), &transport, &clock);
  ASSERT_TRUE(engine.ok());
  (*engine)->Start();
  std::atomic<int> ends{0};
  for (uint64_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE((*engine)
                    ->Submit({.id = RequestId(i), .prompt = {1, 2}, .max_tokens = 190},
                             std::make_shared<CountingSink>(&ends))
                    .ok());
  }
  std::this_thread::sleep_for(milliseconds(2));
  engine->reset();
  EXPECT_EQ(ends, 8);
}

}  // namespace
}  // namespace staffel
