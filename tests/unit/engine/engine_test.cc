#include "engine/engine.h"

#include <ctime>
#include <string>
#include <thread>

#include "tests/unit/engine/engine_harness.h"

namespace staffel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

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
