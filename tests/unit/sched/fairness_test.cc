// Who gets how much of the steps. Times: a small CPU, 4000 tokens of prefill a second, 4 ms for a
// step of decodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/unit/sched/harness.h"

namespace staffel::sched {
namespace {

Config CpuConfig() {
  Config config;
  config.block_count = 4096;
  config.max_model_len = 8192;
  config.max_sequences = 16;
  return config;
}

double CpuSeconds(const StepPlan& plan) {
  int prefill = 0;
  bool decodes = false;
  for (const Chunk& chunk : plan.chunks) {
    if (chunk.count == 1) {
      decodes = true;
    } else {
      prefill += chunk.count;
    }
  }
  return std::max(0.004, prefill / 4000.0 + (decodes ? 0.004 : 0.0));
}

struct Measured {
  double gap_max_s = 0, gap_usual_s = 0, prompt_s = 0;
};

// Four streams decode; then a prompt of 7500 tokens comes.
Measured LongPromptBesideStreams(Config config, int streams) {
  Harness h(config);
  h.step_seconds = CpuSeconds;
  for (int i = 0; i < streams; ++i) h.Submit({.prompt = Tokens(100 * i, 30), .max_tokens = 5000});
  for (int i = 0; i < 50; ++i) h.Step();
  Measured measured;
  measured.gap_usual_s = 0.004;
  const RequestId id = h.Submit({.prompt = Tokens(10000, 7500), .max_tokens = 1});
  while (h.FinishOf(id).empty()) {
    h.Step();
    const double seconds = CpuSeconds(h.last);
    measured.prompt_s += seconds;
    measured.gap_max_s = std::max(measured.gap_max_s, seconds);
    if (streams > 0) {
      EXPECT_GE(std::count_if(h.last.chunks.begin(), h.last.chunks.end(),
                              [](const Chunk& c) { return c.count == 1 && c.samples; }),
                streams)
          << "every stream is in every step";
    }
  }
  return measured;
}

TEST(Fairness, ALongPromptStretchesTheStepsOfStreamsByABoundedFactor) {
  const Measured alone = LongPromptBesideStreams(CpuConfig(), 0);
  EXPECT_NEAR(alone.prompt_s, 7500 / 4000.0, 0.1);
  const Measured beside = LongPromptBesideStreams(CpuConfig(), 4);
  EXPECT_LE(beside.gap_max_s, 5 * beside.gap_usual_s);
  EXPECT_LE(beside.prompt_s, 3 * alone.prompt_s);
  Config fixed = CpuConfig();
  fixed.step_stretch_percent = 0;
  const Measured with_fixed_share = LongPromptBesideStreams(fixed, 4);
  EXPECT_LE(with_fixed_share.gap_max_s, 5 * with_fixed_share.gap_usual_s);
  EXPECT_LE(with_fixed_share.prompt_s, 3 * alone.prompt_s);
}

TEST(Fairness, AShortPromptDoesNotWaitForLongOnes) {
  Config config = CpuConfig();
  Harness h(config);
  for (int i = 0; i < 4; ++i) h.Submit({.prompt = Tokens(10000 * i, 7000), .max_tokens = 1});
  h.Step();
  const RequestId small = h.Submit({.prompt = Tokens(90000, 60), .max_tokens = 1});
  int steps = 0;
  while (h.TextOf(small).empty()) {
    h.Step();
    ++steps;
  }
  EXPECT_EQ(steps, 1);
}

TEST(Fairness, ALongPromptIsNotStarvedByAFloodOfShortOnes) {
  Harness h(CpuConfig());
  const RequestId large = h.Submit({.prompt = Tokens(0, 4000), .max_tokens = 1});
  int steps = 0, next = 10000;
  while (h.FinishOf(large).empty()) {
    // More short ones than a step can hold, in every step.
    for (int i = 0; i < 12; ++i) h.Submit({.prompt = Tokens(next += 100, 50), .max_tokens = 1});
    h.Step();
    ASSERT_LT(++steps, 4000 / 256 + 3) << "half of each step of 512 is the oldest's";
  }
}

TEST(Fairness, ALargeRequestThatWaitsForBlocksIsOvertakenOnlySoOften) {
  Config config = SmallConfig(/*block_count=*/20);
  config.overtakes_max = 5;
  Harness h(config);
  h.Submit({.prompt = Tokens(0, 30), .max_tokens = 20});
  h.Step();
  const RequestId large = h.Submit({.prompt = Tokens(100, 60), .max_tokens = 1});
  std::vector<RequestId> small;
  for (int i = 0; i < 12; ++i)
    small.push_back(h.Submit({.prompt = Tokens(1000 + 10 * i, 4), .max_tokens = 2}));
  while (h.FinishOf(large).empty()) ASSERT_TRUE(h.Step());
  const auto ended = std::count_if(small.begin(), small.end(),
                                   [&](RequestId id) { return !h.FinishOf(id).empty(); });
  EXPECT_EQ(ended, 5);
  h.RunToEnd();
}

TEST(Fairness, LowerPriorityValuesGoFirst) {
  Config config = SmallConfig();
  config.max_sequences = 1;
  Harness h(config);
  const RequestId running = h.Submit({.prompt = {1}, .max_tokens = 2});
  h.Step();
  const RequestId late = h.Submit({.prompt = {2}, .max_tokens = 2, .priority = 5});
  const RequestId urgent = h.Submit({.prompt = {3}, .max_tokens = 2, .priority = -5});
  h.RunToEnd();
  std::vector<RequestId> ends;
  for (const SeqEvent& event : h.events) {
    if (event.finish.has_value()) ends.push_back(event.request);
  }
  EXPECT_EQ(ends, (std::vector<RequestId>{running, urgent, late}));
}

TEST(Fairness, AFullStepOfDecodesLeavesRoomForPrefill) {
  Config config = SmallConfig(/*block_count=*/200);
  config.max_sequences = 8;
  config.prefill_reserve_tokens = 4;
  config.prefill_beside_decodes = 4;
  config.prefill_beside_decodes_min = 4;
  config.tokens_per_step_max = 12;
  Harness h(config);
  for (int i = 0; i < 7; ++i) h.Submit({.prompt = Tokens(10 * i, 1), .max_tokens = 200});
  for (int i = 0; i < 5; ++i) h.Step();
  const RequestId id = h.Submit({.prompt = Tokens(1000, 41), .max_tokens = 1});
  int steps = 0;
  while (h.TextOf(id).empty()) {
    h.Step();
    ++steps;
  }
  EXPECT_EQ(steps, 11);
}

TEST(CostModel, AllowsWhatStretchesAStepByThePolicy) {
  Config config = CpuConfig();
  config.step_stretch_percent = 400;
  CostModel costs(config);
  EXPECT_EQ(costs.PrefillBesideDecodes(), config.prefill_beside_decodes);
  costs.Observe(0, 512, 512 / 4000.0);
  costs.Observe(4, 0, 0.004);
  EXPECT_EQ(costs.PrefillBesideDecodes(), config.prefill_beside_decodes) << "not tried yet";
  for (int i = 0; i < 30; ++i) costs.Observe(4, 32, 0.004 + 32 / 4000.0);
  EXPECT_NEAR(costs.PrefillBesideDecodes(), 48, 1);  // 3 * 4 ms * 4000/s
  // A GPU: 8 ms, 20000 tokens a second.
  CostModel fast(config);
  fast.Observe(0, 512, 0.008 + 512 / 20000.0);
  fast.Observe(64, 0, 0.008);
  for (int i = 0; i < 60; ++i) fast.Observe(64, 256, 0.008 + 256 / 20000.0);
  EXPECT_NEAR(fast.PrefillBesideDecodes(), 480, 2);
}

TEST(CostModel, ALuckyMeasurementDoesNotOpenTheDoor) {
  CostModel costs(CpuConfig());
  costs.Observe(0, 512, 512 / 4000.0);
  costs.Observe(4, 0, 0.004);
  costs.Observe(4, 32, 0.003);  // faster with prefill than without
  EXPECT_LE(costs.PrefillBesideDecodes(), 41);
}

TEST(CostModel, WhatWasUnderestimatedIsCorrectedInAFewSteps) {
  CostModel costs(CpuConfig());
  costs.Observe(0, 512, 0.010);  // 0.02 ms a token; beside decodes it will be 0.5
  costs.Observe(1, 0, 0.004);
  double step_s_max = 0;
  for (int i = 0; i < 40; ++i) {
    const int tokens = costs.PrefillBesideDecodes();
    const double step_s = 0.004 + 0.0005 * tokens;
    step_s_max = std::max(step_s_max, step_s);
    costs.Observe(4, tokens, step_s);
  }
  EXPECT_LE(step_s_max, 0.040);
  EXPECT_NEAR(costs.PrefillBesideDecodes(), 24, 1);
}

TEST(CostModel, DisturbedStepsOfDecodesDoNotLengthenMixedOnes) {
  CostModel costs(CpuConfig());
  costs.Observe(0, 512, 512 / 4000.0);
  costs.Observe(4, 0, 0.004);
  for (int i = 0; i < 300; ++i) costs.Observe(4, 0, i % 10 == 0 ? 0.100 : 0.004);
  for (int i = 0; i < 30; ++i) costs.Observe(4, 32, 0.004 + 32 / 4000.0);
  EXPECT_LE(costs.PrefillBesideDecodes(), 60);
}

TEST(CostModel, NonsenseIsIgnored) {
  CostModel costs(CpuConfig());
  for (double seconds : {0.0, -1.0, 1e18, std::numeric_limits<double>::quiet_NaN()})
    costs.Observe(1, 0, seconds);
  EXPECT_EQ(costs.PrefillBesideDecodes(), 32);
}

}  // namespace
}  // namespace staffel::sched
