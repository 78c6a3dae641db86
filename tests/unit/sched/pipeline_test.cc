// Stages of a pipeline in virtual time: which share of it they are busy, and what streams feel.
// Times: a small model on a CPU, 4 ms to read its weights, 0.15 ms for a stream, 0.25 ms for a
// token of prefill, spread over the stages; the master and the way to it and back take 0.15 ms.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "tests/unit/sched/harness.h"

namespace staffel::sched {
namespace {

constexpr double kWeights_s = 0.004, kStream_s = 0.00015, kPrefillToken_s = 0.00025;
constexpr double kMaster_s = 0.00015;

double ModelSeconds(const StepPlan& plan) {
  int decodes = 0, prefill = 0;
  for (const Chunk& chunk : plan.chunks) {
    (chunk.count == 1 ? decodes : prefill) += chunk.count;
  }
  return std::max(kWeights_s, kPrefillToken_s * prefill) + kStream_s * decodes;
}

Config PipelineConfig(int stages) {
  Config config;
  config.block_count = 1 << 12;
  config.max_model_len = 1 << 14;
  config.max_sequences = 64;
  config.micro_batches = stages;
  config.relay_tokens = stages > 1;
  return config;
}

class Pipeline {
 public:
  // shares: of each stage, of the model; their sum is 1.
  Pipeline(const Config& config, std::vector<double> shares)
      : harness(config),
        depth_(config.micro_batches),
        shares_(std::move(shares)),
        free_s_(shares_.size()),
        busy_s_(shares_.size()) {
    harness.step_seconds = [this](const StepPlan& plan) {
      return ModelSeconds(plan) * shares_.back();
    };
  }

  // Plans as long as steps may be in flight, then goes on to the next outcome. Whether there was
  // one.
  bool Advance() {
    while (static_cast<int>(harness.in_flight.size()) < depth_ && harness.Plan()) {
      double ready_s = now_s;
      for (size_t i = 0; i < shares_.size(); ++i) {
        const double seconds = ModelSeconds(harness.last) * shares_[i];
        ready_s = std::max(ready_s, free_s_[i]) + seconds;
        free_s_[i] = ready_s;
        if (ready_s - seconds >= window_begin_s_) busy_s_[i] += seconds;
      }
      outcomes_s_.push_back(ready_s + kMaster_s);
    }
    if (harness.in_flight.empty()) return false;
    now_s = outcomes_s_.front();
    outcomes_s_.pop_front();
    const size_t seen = harness.events.size();
    harness.Finish();
    for (size_t i = seen; i < harness.events.size(); ++i) {
      const SeqEvent& event = harness.events[i];
      double& last_s = token_s_[event.request.value];
      if (last_s > 0) gap_max_s = std::max(gap_max_s, now_s - last_s);
      last_s = now_s;
      tokens += static_cast<int>(event.tokens.size());
    }
    return true;
  }
  void RunFor(double seconds) {
    const double end_s = now_s + seconds;
    while (now_s < end_s && Advance()) {
    }
  }
  void BeginWindow() {
    window_begin_s_ = now_s;
    std::fill(busy_s_.begin(), busy_s_.end(), 0);
    tokens = 0;
    gap_max_s = 0;
  }
  // Of the stage that is busy least.
  double Utilisation() const {
    return *std::min_element(busy_s_.begin(), busy_s_.end()) / (now_s - window_begin_s_);
  }

  Harness harness;
  double now_s = 0, gap_max_s = 0;
  int tokens = 0;  // drawn in the window

 private:
  const int depth_;
  const std::vector<double> shares_;
  double window_begin_s_ = 0;
  std::vector<double> free_s_, busy_s_;
  std::deque<double> outcomes_s_;
  std::map<uint64_t, double> token_s_;  // when a request's last token came
};

std::vector<double> EqualShares(int stages) { return std::vector<double>(stages, 1.0 / stages); }

struct Steady {
  double utilisation = 0, tokens_per_s = 0;
};

Steady SteadyStreams(Config config, int stages, int streams) {
  Pipeline pipeline(config, EqualShares(stages));
  for (int i = 0; i < streams; ++i) {
    pipeline.harness.Submit({.prompt = Tokens(100 * i, 30), .max_tokens = 10000});
  }
  pipeline.RunFor(1);
  pipeline.BeginWindow();
  pipeline.RunFor(2);
  return {pipeline.Utilisation(), pipeline.tokens / 2.0};
}

TEST(Pipeline, SixteenStreamsKeepTwoStagesBusy) {
  const Steady steady = SteadyStreams(PipelineConfig(2), 2, 16);
  std::cout << "two stages, 16 streams: " << steady.utilisation << " busy, " << steady.tokens_per_s
            << " tokens/s\n";
  EXPECT_GE(steady.utilisation, 0.95);
  Config greedy = PipelineConfig(2);
  greedy.micro_batches = 1;
  const Steady one_step = SteadyStreams(greedy, 2, 16);
  EXPECT_LT(one_step.utilisation, 0.55) << "the test can tell";
  EXPECT_GT(steady.tokens_per_s, 1.2 * one_step.tokens_per_s);
}

TEST(Pipeline, AnyNumberOfStreamsAndStages) {
  for (int stages : {2, 3, 4}) {
    for (int streams : {stages, 9, 16, 17, 40}) {
      const Steady steady = SteadyStreams(PipelineConfig(stages), stages, streams);
      EXPECT_GE(steady.utilisation, streams % stages == 0 ? 0.95 : 0.85)
          << stages << " stages, " << streams << " streams";
    }
  }
}

TEST(Pipeline, AnotherStepInFlightWouldCostMoreThanItHides) {
  Config more = PipelineConfig(2);
  more.micro_batches = 3;
  const Steady two = SteadyStreams(PipelineConfig(2), 2, 16), three = SteadyStreams(more, 2, 16);
  std::cout << "steps in flight: 2: " << two.tokens_per_s << " tokens/s, 3: " << three.tokens_per_s
            << " tokens/s\n";
  EXPECT_GT(three.utilisation, two.utilisation);
  EXPECT_GT(two.tokens_per_s, 1.1 * three.tokens_per_s);
}

TEST(Pipeline, ASingleStreamLosesNothing) {
  Pipeline pipeline(PipelineConfig(2), EqualShares(2));
  pipeline.harness.Submit({.prompt = Tokens(0, 30), .max_tokens = 500});
  pipeline.RunFor(0.1);
  pipeline.BeginWindow();
  pipeline.RunFor(1);
  EXPECT_NEAR(pipeline.gap_max_s, kWeights_s + kStream_s + kMaster_s, 1e-9);
}

TEST(Pipeline, UnevenStagesAreBoundByTheSlowest) {
  Pipeline pipeline(PipelineConfig(2), {0.4, 0.6});
  for (int i = 0; i < 16; ++i) {
    pipeline.harness.Submit({.prompt = Tokens(100 * i, 30), .max_tokens = 10000});
  }
  pipeline.RunFor(1);
  pipeline.BeginWindow();
  pipeline.RunFor(2);
  EXPECT_NEAR(pipeline.Utilisation(), 0.4 / 0.6, 0.01) << "the slower one never waits";
}

// Streams end and others come, of any length.
TEST(Pipeline, StaysBusyWhileStreamsComeAndGo) {
  Pipeline pipeline(PipelineConfig(2), EqualShares(2));
  std::mt19937_64 random(7);
  int next = 0;
  const auto refill = [&] {
    const auto& scheduler = pipeline.harness.scheduler;
    while (scheduler.running_count() + scheduler.waiting_count() < 16) {
      ++next;
      pipeline.harness.Submit({.prompt = Tokens(1000 * next, 10 + static_cast<int>(random() % 200)),
                               .max_tokens = 1 + static_cast<int>(random() % 100)});
    }
  };
  for (int i = 0; i < 300; ++i) refill(), pipeline.Advance();
  pipeline.BeginWindow();
  for (int i = 0; i < 1000; ++i) refill(), pipeline.Advance();
  std::cout << "streams that come and go: " << pipeline.Utilisation() << " busy\n";
  EXPECT_GE(pipeline.Utilisation(), 0.85);
}

TEST(Pipeline, APromptIsCutSoThatAllStagesWorkOnIt) {
  for (int prompt : {512, 600, 2000, 7500}) {
    Pipeline pipeline(PipelineConfig(2), EqualShares(2));
    pipeline.harness.Submit({.prompt = Tokens(0, prompt), .max_tokens = 1});
    while (pipeline.Advance()) {
    }
    const double alone_s = prompt * kPrefillToken_s;
    std::cout << "prompt of " << prompt << ": " << pipeline.now_s / alone_s
              << " of one stage's time\n";
    EXPECT_LE(pipeline.now_s, 0.80 * alone_s) << prompt;
  }
}

TEST(Pipeline, PromptsBesideStreamsStretchTheirStepsAsInOneProcess) {
  double gaps[2], prompts[2];
  for (int stages : {1, 2}) {
    Pipeline pipeline(PipelineConfig(stages), EqualShares(stages));
    for (int i = 0; i < 4; ++i) {
      pipeline.harness.Submit({.prompt = Tokens(100 * i, 30), .max_tokens = 10000});
    }
    pipeline.RunFor(1);
    pipeline.BeginWindow();
    const RequestId id = pipeline.harness.Submit({.prompt = Tokens(10000, 7500), .max_tokens = 1});
    while (pipeline.harness.FinishOf(id).empty()) pipeline.Advance();
    gaps[stages - 1] = pipeline.gap_max_s;
    prompts[stages - 1] = pipeline.now_s - 1;
  }
  std::cout << "gap of streams beside a prompt: " << gaps[0] << " s in one process, " << gaps[1]
            << " s over two stages; prompt " << prompts[0] << " s, " << prompts[1] << " s\n";
  EXPECT_LE(gaps[1], 1.5 * gaps[0]);
  EXPECT_LE(prompts[1], 0.8 * prompts[0]);
}

TEST(Pipeline, EveryStreamIsInOneOfTheNextSteps) {
  Config config = PipelineConfig(3);
  Harness h(config);
  std::map<int, uint64_t> last_step;
  for (int i = 0; i < 10; ++i) h.Submit({.prompt = Tokens(100 * i, 3), .max_tokens = 100});
  uint64_t steps = 0;
  while (steps < 150) {
    while (h.in_flight.size() < 3 && h.Plan()) {
      ++steps;
      for (const Chunk& chunk : h.last.chunks) last_step[chunk.slot.value] = steps;
      if (steps < 10) continue;
      EXPECT_LE(h.last.chunks.size(), 4u);
      for (const auto& [slot, step] : last_step) EXPECT_LE(steps - step, 5u) << "slot " << slot;
    }
    h.Finish();
  }
}

}  // namespace
}  // namespace staffel::sched
