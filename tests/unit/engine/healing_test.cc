// Losses of workers, planned changes, waits that run out.
#include <string>

#include "tests/unit/engine/engine_harness.h"

namespace staffel {
namespace {

using std::chrono::seconds;

class HealingTest : public EngineTest {};

EngineOptions HealingOptions() {
  EngineOptions options = SmallOptions();
  options.heal = true;
  return options;
}

TEST_F(HealingTest, HealingKeepsRequestsUntilResume) {
  EngineOptions options = SmallOptions();
  options.heal = true;
  std::vector<std::string> losses;
  options.on_loss = [&](int, const Status& reason) { losses.emplace_back(reason.message()); };
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

TEST_F(HealingTest, TheNextLayoutMayBeAPipelineAndNoneAgain) {
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

TEST_F(HealingTest, WhenTheWaitHasRunOutRequestsEndAndTheEngineLivesOn) {
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

TEST_F(HealingTest, FailRequestsWhileServingEndsThoseBefore) {
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

TEST_F(HealingTest, APlannedPauseIsNoLoss) {
  EngineOptions options = HealingOptions();
  int losses = 0;
  options.on_loss = [&](int, const Status&) { ++losses; };
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

}  // namespace
}  // namespace staffel
