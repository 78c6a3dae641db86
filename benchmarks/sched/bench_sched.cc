// The master's own work between two steps. Target: under 100 us at 256 sequences.
//
//   Step/N       Apply of a decode step's outcome and Plan of the next, N sequences
//   Turn/N       the same through the engine: mailbox, events to sinks, plan to the transport
//   Prefill      Submit, Plan and Apply of a prompt of 8000 tokens in chunks of 512, all blocks
//   hashed and published PrefixHit    admission of a prompt of 8000 tokens whose blocks are all
//   found
#include <benchmark/benchmark.h>

#include <memory>
#include <numeric>

#include "base/check.h"
#include "engine/engine.h"

namespace staffel {
namespace {

sched::Config BenchConfig(int sequences) {
  sched::Config config;
  config.block_count = 65536;
  config.block_size = 16;
  config.max_model_len = 1 << 20;
  config.max_sequences = sequences;
  config.tokens_per_step_max = 512 + sequences;
  return config;
}

GenerateRequest MakeRequest(uint64_t id, int prompt, int max_tokens) {
  GenerateRequest request{.id = RequestId(id), .max_tokens = max_tokens, .stop_tokens = {1, 2}};
  request.prompt.resize(prompt);
  std::iota(request.prompt.begin(), request.prompt.end(), static_cast<int>(id) * 1000 + 10);
  return request;
}

StepOutcome Answer(const StepPlan& plan) {
  StepOutcome outcome{.epoch = plan.epoch, .step = plan.step};
  outcome.sampled.reserve(plan.chunks.size());
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.samples) outcome.sampled.push_back({.slot = chunk.slot, .token = {.token = 7}});
  }
  return outcome;
}

void BM_Step(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0));
  auto scheduler = std::make_unique<sched::Scheduler>(BenchConfig(sequences));
  std::vector<SeqEvent> events;
  uint64_t id = 0;
  std::optional<StepPlan> plan;
  int tokens = 0;
  const auto refill = [&] {
    scheduler = std::make_unique<sched::Scheduler>(BenchConfig(sequences));
    for (int i = 0; i < sequences; ++i)
      STAFFEL_CHECK(scheduler->Submit(MakeRequest(++id, 100, 1 << 19)).ok());
    while (plan = scheduler->Plan(events), static_cast<int>(plan->chunks.size()) < sequences) {
      STAFFEL_CHECK(scheduler->Apply(Answer(*plan), events).ok());
      events.clear();
    }
    tokens = 0;
  };
  refill();
  for (auto _ : state) {
    state.PauseTiming();
    if (++tokens == 2000) refill();
    StepOutcome outcome = Answer(*plan);
    events.clear();
    state.ResumeTiming();
    STAFFEL_CHECK(scheduler->Apply(std::move(outcome), events).ok());
    plan = scheduler->Plan(events);
  }
  state.counters["plans"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Step)->Arg(1)->Arg(32)->Arg(256)->Unit(benchmark::kMicrosecond);

class EchoTransport final : public Transport {
 public:
  void SetOutcomeHandler(std::function<void(StepOutcome)> handler) override {
    handler_ = std::move(handler);
  }
  Status Submit(StepPlan plan) override {
    plan_ = std::move(plan);
    return absl::OkStatus();
  }
  void Deliver() { handler_(Answer(plan_)); }
  int chunks() const { return static_cast<int>(plan_.chunks.size()); }

 private:
  std::function<void(StepOutcome)> handler_;
  StepPlan plan_;
};

class NullSink final : public EventSink {
 public:
  void OnEvent(const SeqEvent& event) override { benchmark::DoNotOptimize(event.tokens.size()); }
};

void BM_Turn(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0));
  SystemClock clock;
  EchoTransport transport;
  EngineOptions options;
  options.scheduler = BenchConfig(sequences);
  options.vocab_size = 1 << 30;
  options.max_queue = sequences;
  auto engine = *Engine::Create(options, &transport, &clock);
  const auto sink = std::make_shared<NullSink>();
  for (int i = 1; i <= sequences; ++i)
    STAFFEL_CHECK(engine->Submit(MakeRequest(i, 100, 1 << 19), sink).ok());
  engine->Turn();
  while (transport.chunks() < sequences) {
    transport.Deliver();
    engine->Turn();
  }
  for (auto _ : state) {
    state.PauseTiming();
    transport.Deliver();
    state.ResumeTiming();
    engine->Turn();
  }
}
// 2000 steps: what 65536 blocks hold of 256 sequences.
BENCHMARK(BM_Turn)->Arg(1)->Arg(32)->Arg(256)->Iterations(2000)->Unit(benchmark::kMicrosecond);

void RunPrompt(sched::Scheduler& scheduler, uint64_t id, int first) {
  std::vector<SeqEvent> events;
  GenerateRequest request = MakeRequest(id, 0, 1);
  request.prompt.resize(8000);
  std::iota(request.prompt.begin(), request.prompt.end(), first);
  STAFFEL_CHECK(scheduler.Submit(std::move(request)).ok());
  while (auto plan = scheduler.Plan(events))
    STAFFEL_CHECK(scheduler.Apply(Answer(*plan), events).ok());
}

void BM_Prefill(benchmark::State& state) {
  sched::Scheduler scheduler(BenchConfig(64));
  uint64_t id = 0;
  for (auto _ : state) {
    ++id;
    RunPrompt(scheduler, id, static_cast<int>(id) * 10007);
  }
}
BENCHMARK(BM_Prefill)->Unit(benchmark::kMicrosecond);

void BM_PrefixHit(benchmark::State& state) {
  sched::Scheduler scheduler(BenchConfig(64));
  uint64_t id = 1;
  RunPrompt(scheduler, id, 0);
  for (auto _ : state) RunPrompt(scheduler, ++id, 0);
}
BENCHMARK(BM_PrefixHit)->Unit(benchmark::kMicrosecond);

// 256 requests with one prefix of 8000 tokens at once: the first computes it, the others wait for
// its blocks.
void BM_Crowd(benchmark::State& state) {
  std::vector<SeqEvent> events;
  for (auto _ : state) {
    state.PauseTiming();
    sched::Scheduler scheduler(BenchConfig(64));
    for (uint64_t id = 1; id <= 256; ++id) {
      GenerateRequest request = MakeRequest(id, 0, 1);
      request.prompt.resize(8000);
      std::iota(request.prompt.begin(), request.prompt.end(), 5);
      request.prompt.back() = static_cast<TokenId>(id);
      STAFFEL_CHECK(scheduler.Submit(std::move(request)).ok());
    }
    state.ResumeTiming();
    for (int step = 0; step < 15; ++step) {
      std::optional<StepPlan> plan = scheduler.Plan(events);
      STAFFEL_CHECK(scheduler.Apply(Answer(*plan), events).ok());
    }
  }
}
BENCHMARK(BM_Crowd)->Iterations(20)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace staffel

BENCHMARK_MAIN();
