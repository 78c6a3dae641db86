#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/worker_world.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(WorkerTest, ChunkedPrefillBesideDecodesReadsTheRightPrefixes) {
  std::vector<TokenId> a = {1, 2, 3}, b = {9, 8, 7, 6, 5, 4, 3, 2, 1};
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, a), Greedy(1, b)};
  plan.block_appends = {{Slot(0), {BlockId(5), BlockId(2)}},
                        {Slot(1), {BlockId(9), BlockId(0), BlockId(4)}}};
  plan.chunks = {{Slot(0), 0, 3, true}, {Slot(1), 0, 4, false}};
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.epoch, 1);
  EXPECT_EQ(outcome.step, 1u);
  ASSERT_EQ(outcome.sampled.size(), 1u);
  EXPECT_EQ(outcome.sampled[0].slot, Slot(0));
  EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next(a));
  a.push_back(outcome.sampled[0].token.token);

  plan = Plan();
  plan.chunks = {{Slot(0), 3, 1, true}, {Slot(1), 4, 5, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_EQ(outcome.sampled.size(), 2u);
  EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next(a));
  EXPECT_EQ(outcome.sampled[1].token.token, FakeExecutable::Next(b));
  EXPECT_GE(outcome.compute_s, 0);
}

TEST_F(WorkerTest, TheNextPlanMayBeMadeBeforeTheTokenIsKnown) {
  std::vector<TokenId> tokens = {1, 2, 3};
  StepPlan first = Plan();
  first.new_sequences = {Greedy(0, tokens)};
  first.block_appends = {{Slot(0), {BlockId(0), BlockId(1), BlockId(2)}}};
  first.chunks = {{Slot(0), 0, 3, true}};
  std::vector<StepPlan> plans = {first};
  for (int i = 3; i < 10; ++i) {
    plans.push_back(Plan());
    plans.back().chunks = {{Slot(0), i, 1, true}};
  }
  for (const StepPlan& plan : plans) {
    StepOutcome outcome = worker_.Run(plan);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status;
    ASSERT_EQ(outcome.sampled.size(), 1u);
    EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next(tokens));
    tokens.push_back(outcome.sampled[0].token.token);
  }
}

TEST_F(WorkerTest, CopiedBlocksGiveASequenceItsOwnTail) {
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3, 4, 5, 6})};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 6, false}};
  ASSERT_TRUE(worker_.Run(plan).status.ok());
  // The second continuation shares block 0 and gets a copy of the half-full block 1.
  plan = Plan();
  plan.new_sequences = {Greedy(1, {1, 2, 3, 4, 5, 6, 7})};
  plan.block_appends = {{Slot(1), {BlockId(0), BlockId(2)}}};
  plan.block_copies = {{BlockId(1), BlockId(2)}};
  plan.chunks = {{Slot(1), 6, 1, true}};
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next({1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(WorkerTest, PromptLogprobsSpeakOfTheTokenThatFollows) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, prompt)};
  plan.new_sequences[0].sampling.prompt_logprobs = 1;
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, false, true}};
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_EQ(outcome.prompt_logprobs.size(), 1u);
  EXPECT_EQ(outcome.prompt_logprobs[0].start, 0);
  ASSERT_EQ(outcome.prompt_logprobs[0].entries.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const PromptLogprob& entry = outcome.prompt_logprobs[0].entries[i];
    std::vector<TokenId> prefix(prompt.begin(), prompt.begin() + i + 1);
    ASSERT_EQ(entry.top.size(), 1u);
    EXPECT_EQ(entry.top[0].token, FakeExecutable::Next(prefix));
    EXPECT_LT(entry.logprob, entry.top[0].logprob);
  }
  plan = Plan();
  plan.chunks = {{Slot(0), 3, 2, true, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.prompt_logprobs[0].start, 3);
  EXPECT_EQ(outcome.prompt_logprobs[0].entries.size(), 1u) << "the last token has none behind it";
  ASSERT_EQ(outcome.sampled.size(), 1u);
  EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next(prompt));
}

TEST_F(WorkerTest, EmbeddingsDoNotDependOnHowThePromptIsCut) {
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6};
  const auto pool = [&](Pooling pooling, std::vector<int> cuts) {
    StepPlan plan = Plan();
    plan.new_sequences = {Greedy(0, prompt)};
    plan.new_sequences[0].pooling = pooling;
    plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
    std::vector<Embedding> embeddings;
    int start = 0;
    for (int end : cuts) {
      plan.chunks = {{Slot(0), start, end - start}};
      const StepOutcome outcome = worker_.Run(plan);
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_EQ(outcome.embeddings.size(), end == 6 ? 1u : 0u);
      for (const Embedding& embedding : outcome.embeddings) embeddings.push_back(embedding);
      plan = Plan();
      start = end;
    }
    plan.released = {Slot(0)};
    EXPECT_TRUE(worker_.Run(plan).status.ok());
    return embeddings.empty() ? std::vector<float>() : embeddings[0].values;
  };
  std::vector<float> sum(2);
  for (int count = 1; count <= 6; ++count) {
    const uint64_t prefix = FakeExecutable::Prefix({prompt.begin(), prompt.begin() + count});
    sum[0] += static_cast<float>(prefix % 512);
    sum[1] += static_cast<float>(prefix / 512 % 512);
  }
  const uint64_t whole = FakeExecutable::Prefix(prompt);
  const std::vector<float> last = {static_cast<float>(whole % 512),
                                   static_cast<float>(whole / 512 % 512)};
  const std::vector<float> mean = {sum[0] / 6, sum[1] / 6};
  for (const std::vector<int>& cuts : std::vector<std::vector<int>>{{6}, {1, 2, 6}, {5, 6}}) {
    EXPECT_EQ(pool(Pooling::kLast, cuts), last);
    EXPECT_EQ(pool(Pooling::kMean, cuts), mean);
    EXPECT_EQ(pool(Pooling::kNone, {5}), std::vector<float>());
  }
}

TEST_F(WorkerTest, AMeanWithoutTheFirstTokensIsRefused) {
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3, 4, 5, 6})};
  plan.new_sequences[0].pooling = Pooling::kMean;
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), kBlockSize, 2}};
  EXPECT_THAT(std::string(worker_.Run(plan).status.message()),
              HasSubstr("leaves out tokens behind position 0"));
}

TEST_F(WorkerTest, MinTokensBansStopTokensUntilThen) {
  const TokenId natural = FakeExecutable::Next({1, 2, 3});
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.new_sequences[0].min_tokens = 1;
  plan.new_sequences[0].stop_tokens = {natural};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok());
  EXPECT_NE(outcome.sampled[0].token.token, natural);
  // From the first token on, the ban is over: a sequence that came back from a preemption.
  plan = Plan();
  plan.released = {Slot(0)};
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.new_sequences[0].prompt_count = 2;
  plan.new_sequences[0].min_tokens = 1;
  plan.new_sequences[0].stop_tokens = {natural};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok());
  EXPECT_EQ(outcome.sampled[0].token.token, natural);
}

TEST_F(WorkerTest, NanLogitsEndTheSequenceNotTheStep) {
  executable_->nan_at_run = 1;
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  StepOutcome outcome = worker_.Run(plan);
  EXPECT_TRUE(outcome.status.ok());
  ASSERT_EQ(outcome.sampled.size(), 1u);
  EXPECT_EQ(outcome.sampled[0].error.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(outcome.sampled[0].token.token, 0);
  // A plan that was on its way already finds the mirror in step.
  plan = Plan();
  plan.chunks = {{Slot(0), 3, 1, true}};
  outcome = worker_.Run(plan);
  EXPECT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].token.token, FakeExecutable::Next({1, 2, 3, 0}));
}

TEST_F(WorkerTest, OtherEpochsAreDroppedWithoutEffect) {
  StepPlan old = Plan();
  old.epoch = 0;
  EXPECT_EQ(worker_.Run(old).status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(executable_->runs, 0);
  step_ = 0;
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1})};
  EXPECT_TRUE(worker_.Run(plan).status.ok());
}

TEST_F(WorkerTest, AFailedStepEndsTheEpoch) {
  executable_->fail_next = true;
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.block_appends = {{Slot(0), {BlockId(0)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  EXPECT_EQ(worker_.Run(plan).status.code(), absl::StatusCode::kUnavailable);
  executable_->fail_next = false;
  EXPECT_EQ(worker_.Run(Plan()).status.code(), absl::StatusCode::kUnavailable);
  Configure(2);
  StepPlan again = Plan();
  again.new_sequences = plan.new_sequences;
  again.block_appends = plan.block_appends;
  again.chunks = plan.chunks;
  EXPECT_TRUE(worker_.Run(again).status.ok());
}

TEST_F(WorkerTest, BadPlansAreAnswersNotCrashes) {
  StepPlan plan = Plan();
  plan.chunks = {{Slot(3), 0, 1, true}};
  StepOutcome outcome = worker_.Run(plan);
  EXPECT_FALSE(outcome.status.ok());
  EXPECT_THAT(std::string(outcome.status.message()), HasSubstr("slot 3"));
  EXPECT_EQ(executable_->runs, 0);
}

TEST_F(WorkerTest, TooManyLogitsRowsAreRefused) {
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, std::vector<TokenId>(20, 1))};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1), BlockId(2), BlockId(3), BlockId(4)}}};
  plan.chunks = {{Slot(0), 0, 20, true, true}};
  EXPECT_THAT(std::string(worker_.Run(plan).status.message()), HasSubstr("20 rows"));
}

TEST_F(WorkerTest, AStageWithoutLogitsComputesWhatItIsTold) {
  Configure(1, /*samples=*/false);
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.new_sequences[0].sampling.prompt_logprobs = 0;
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true, true}};
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_TRUE(outcome.sampled.empty());
  EXPECT_TRUE(outcome.prompt_logprobs.empty());
  plan = Plan();
  plan.known_tokens = {{Slot(0), 3, 17}};
  plan.chunks = {{Slot(0), 3, 1, true}};
  ASSERT_TRUE(worker_.Run(plan).status.ok());
  EXPECT_EQ(executable_->last_tokens, std::vector<TokenId>{17});
  plan = Plan();
  plan.chunks = {{Slot(0), 4, 1, true}};
  EXPECT_THAT(std::string(worker_.Run(plan).status.message()), HasSubstr("known tokens"));
}

// The next plan may rely on a token before the master knows it.
TEST_F(WorkerTest, MembersOfTheLastStageSendEachOtherWhatIsDrawn) {
  Configure(1, /*samples=*/true, /*draws_to=*/{4, 5}, -1);
  StepPlan first = Plan();
  first.new_sequences = {Greedy(0, {1, 2, 3}), Greedy(1, {7})};
  first.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}, {Slot(1), {BlockId(2)}}};
  first.chunks = {{Slot(0), 0, 3, true}, {Slot(1), 0, 1, true}};
  const StepOutcome outcome = worker_.Run(first);
  ASSERT_EQ(outcome.sampled.size(), 2u);
  ASSERT_EQ(group_.mail.size(), 2u);
  EXPECT_EQ(group_.mail[0].first, 4);
  EXPECT_EQ(group_.mail[1].first, 5);
  const std::vector<float> message = group_.mail[0].second;

  StepPlan second = Plan();
  second.chunks = {{Slot(0), 3, 1, true}, {Slot(1), 1, 1, false}};
  Configure(1, /*samples=*/false, {}, /*draws_from=*/3);
  group_.mail = {{3, message}, {3, {std::bit_cast<float>(9)}}};
  EXPECT_TRUE(worker_.Run(first).sampled.empty());
  ASSERT_TRUE(worker_.Run(second).status.ok());
  EXPECT_EQ(executable_->last_tokens,
            (std::vector<TokenId>{outcome.sampled[0].token.token, outcome.sampled[1].token.token}));
  EXPECT_TRUE(group_.mail.empty());  // one token for the one chunk that samples
}

TEST_F(WorkerTest, TokensThatCannotBeAreNotTakenFromOthers) {
  Configure(1, /*samples=*/false, {}, /*draws_from=*/3);
  group_.mail = {{3, {std::bit_cast<float>(kVocab)}}};
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  const Status status = worker_.Run(plan).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 3 has drawn the token"));
}

TEST_F(WorkerTest, WaitsForOtherRanksAreNotItsComputeTime) {
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  EXPECT_NEAR(worker_.Run(plan).compute_s, 0.010, 1e-6);
  executable_->wait_s_per_run = 0.007;
  plan = Plan();
  plan.chunks = {{Slot(0), 3, 1, true}};
  EXPECT_NEAR(worker_.Run(plan).compute_s, 0.003, 1e-6);
}

TEST_F(WorkerTest, EmptyPlansDoNotRunTheModel) {
  EXPECT_TRUE(worker_.Run(Plan()).status.ok());
  EXPECT_EQ(executable_->runs, 0);
}

TEST(Worker, IsOfNoUseBeforeConfigure) {
  SystemClock clock;
  Worker worker(clock);
  EXPECT_EQ(worker.Run(StepPlan()).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(worker.Configure({}).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace staffel
