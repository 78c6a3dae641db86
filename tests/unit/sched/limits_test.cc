// What is refused, and how sequences end.
#include <gtest/gtest.h>

#include "tests/unit/sched/harness.h"

namespace staffel::sched {
namespace {

std::string Refusal(const Config& config, const GenerateRequest& request) {
  const Status status = Scheduler::Check(config, request);
  return status.ok() ? "" : std::string(status.message());
}

TEST(Limits, WhatCanNeverRunIsRefusedWithItsNumbers) {
  Config config = SmallConfig(/*block_count=*/256, /*block_size=*/4);
  config.max_model_len = 2048;
  EXPECT_EQ(Refusal(config, {}), "the prompt is empty; send at least one token");
  EXPECT_EQ(Refusal(config, {.prompt = {1}, .n = 0}), "n is 0; it must be at least 1");
  EXPECT_EQ(Refusal(config, {.prompt = {1}, .max_tokens = -1}),
            "max_tokens is -1; it must be at least 0");
  EXPECT_EQ(
      Refusal(config, {.prompt = Tokens(0, 2048)}),
      "the prompt has 2048 tokens; the context holds 2048 of prompt and answer, so shorten it");
  EXPECT_EQ(
      Refusal(config, {.prompt = Tokens(0, 1025)}),
      "the prompt has 1025 tokens; the KV pool holds 1024, so shorten it or start the server with "
      "more KV memory");
  EXPECT_EQ(Refusal(config, {.prompt = Tokens(0, 1024)}), "");
}

TEST(Limits, AnUnfitConfigIsRefused) {
  EXPECT_EQ(SmallConfig(0).Validate().message(), "block_count is 0; it must be at least 1");
  Config config = SmallConfig();
  config.tokens_per_step_max = 20;
  EXPECT_EQ(config.Validate().message(),
            "tokens_per_step_max is 20; it must hold one token of each of max_sequences (8) "
            "sequences and "
            "prefill_reserve_tokens (16)");
  config = SmallConfig();
  config.oldest_share_percent = 101;
  EXPECT_FALSE(config.Validate().ok());
}

TEST(Limits, TheSameIdTwiceIsRefused) {
  Harness h(SmallConfig());
  EXPECT_TRUE(h.scheduler.Submit({.id = RequestId(5), .prompt = {1}}).ok());
  EXPECT_EQ(h.scheduler.Submit({.id = RequestId(5), .prompt = {1}}).code(),
            absl::StatusCode::kAlreadyExists);
  h.RunToEnd();
}

struct PoolCase {
  int prompt, max_tokens, want_tokens;
};

// A pool of 1024 tokens: the last drawn token needs no KV.
TEST(Limits, APromptAsLargeAsThePoolGivesWhatFits) {
  for (const PoolCase& c :
       {PoolCase{1024, 1, 1}, PoolCase{1024, 64, 1}, PoolCase{1023, 1, 1}, PoolCase{1023, 64, 2},
        PoolCase{1008, 64, 17}, PoolCase{900, 4000, 125}}) {
    Config config = SmallConfig(64, 16);
    config.max_model_len = 8192;
    Harness h(config);
    const RequestId id = h.Submit({.prompt = Tokens(0, c.prompt), .max_tokens = c.max_tokens});
    h.RunToEnd();
    EXPECT_EQ(h.TextOf(id).size(), static_cast<size_t>(c.want_tokens))
        << c.prompt << "+" << c.max_tokens;
    EXPECT_EQ(h.FinishOf(id), "length");
    EXPECT_EQ(h.free_blocks(), 64);
  }
}

struct ContextCase {
  int prompt, max_tokens, want_tokens;
};

TEST(Limits, TheContextEndsASequenceWithLength) {
  for (const ContextCase& c :
       {ContextCase{200, 4000, 56}, ContextCase{200, 100, 56}, ContextCase{255, 4000, 1},
        ContextCase{255, 1, 1}, ContextCase{200, 3, 3}}) {
    Config config = SmallConfig();
    config.block_count = 200;
    config.max_model_len = 256;
    Harness h(config);
    const RequestId id = h.Submit({.prompt = Tokens(0, c.prompt), .max_tokens = c.max_tokens});
    h.RunToEnd();
    EXPECT_EQ(h.TextOf(id).size(), static_cast<size_t>(c.want_tokens))
        << c.prompt << "+" << c.max_tokens;
    EXPECT_EQ(h.FinishOf(id), "length");
  }
}

TEST(Limits, AStopTokenEndsAndIsReported) {
  Harness h(SmallConfig());
  h.draw = [](const Chunk& chunk) { return chunk.start + chunk.count; };
  const RequestId id =
      h.Submit({.prompt = Tokens(50, 4), .max_tokens = 20, .stop_tokens = {99, 6}});
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(id), (std::vector<TokenId>{4, 5, 6}));
  EXPECT_EQ(h.FinishOf(id), "stop");
}

TEST(Limits, AStopTokenBeforeMinTokensDoesNotEnd) {
  Harness h(SmallConfig());
  const RequestId id =
      h.Submit({.prompt = {1, 2}, .max_tokens = 20, .min_tokens = 3, .stop_tokens = {7}});
  h.RunToEnd();
  EXPECT_EQ(h.TextOf(id).size(), 4u);  // three, and the stop token
  EXPECT_EQ(h.FinishOf(id), "stop");
}

TEST(Limits, NoTokensWantedComputesThePromptOnly) {
  Harness h(SmallConfig());
  GenerateRequest request{.prompt = Tokens(0, 9), .n = 2, .max_tokens = 0};
  request.sampling.prompt_logprobs = 0;
  const RequestId id = h.Submit(request);
  EXPECT_EQ(h.RunToEnd(), 1);
  for (int i : {0, 1}) {
    EXPECT_EQ(h.FinishOf(id, i), "length");
    EXPECT_TRUE(h.TextOf(id, i).empty());
    EXPECT_EQ(h.FirstOf(id, i).prompt_logprobs.size(), 8u);
  }
}

TEST(Limits, AnEmbeddingComesWithTheEnd) {
  Harness h(SmallConfig());
  const RequestId id =
      h.Submit({.prompt = Tokens(0, 9), .max_tokens = 0, .pooling = Pooling::kLast});
  ASSERT_TRUE(h.Plan());
  const StepOutcome right = h.Answer(h.last);
  StepOutcome wrong = right;
  wrong.embeddings.clear();
  EXPECT_EQ(h.Apply(wrong).message(), "the outcome of step 1 lacks the embedding of slot 0");
  wrong.embeddings = {right.embeddings[0], right.embeddings[0]};
  EXPECT_EQ(h.Apply(wrong).message(), "the outcome of step 1 has more embeddings than were asked");
  h.Finish();
  EXPECT_EQ(h.FinishOf(id), "length");
  EXPECT_EQ(h.FirstOf(id, 0).embedding, (std::vector<float>{1.5f, 0.0f}));
}

TEST(Limits, AMeanIsOverTokensThatAreCachedToo) {
  Harness h(SmallConfig());
  const auto computed = [&](Pooling pooling) {
    const int before = h.computed_tokens;
    h.Submit({.prompt = Tokens(0, 9), .max_tokens = 0, .pooling = pooling});
    h.RunToEnd();
    return h.computed_tokens - before;
  };
  EXPECT_EQ(computed(Pooling::kMean), 9);
  EXPECT_EQ(computed(Pooling::kLast), 1);
  EXPECT_EQ(computed(Pooling::kMean), 9);
}

TEST(Limits, AnEmbeddingIsOneAndHasNoAnswer) {
  Harness h(SmallConfig());
  for (GenerateRequest request :
       {GenerateRequest{.prompt = {1}, .max_tokens = 1, .pooling = Pooling::kLast},
        GenerateRequest{.prompt = {1}, .n = 2, .max_tokens = 0, .pooling = Pooling::kMean}}) {
    request.id = RequestId(99);
    EXPECT_EQ(h.scheduler.Submit(request).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Limits, ATokenThatCannotBeDrawnEndsItsSequenceOnly) {
  Harness h(SmallConfig());
  const RequestId bad = h.Submit({.prompt = {1, 2}, .max_tokens = 3});
  const RequestId good = h.Submit({.prompt = {3, 4}, .max_tokens = 3});
  ASSERT_TRUE(h.Plan());
  StepOutcome outcome = h.Answer(h.last);
  outcome.sampled[0].error = absl::DataLossError("the logits are not numbers");
  h.in_flight.clear();
  ASSERT_TRUE(h.Apply(outcome).ok());
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(bad), "error");
  EXPECT_TRUE(h.TextOf(bad).empty());
  EXPECT_EQ(h.TextOf(good).size(), 3u);
}

TEST(Limits, AnOutcomeThatDoesNotFitThePlanChangesNothing) {
  Harness h(SmallConfig());
  GenerateRequest request{.prompt = Tokens(0, 5), .max_tokens = 3};
  request.sampling.prompt_logprobs = 0;
  const RequestId id = h.Submit(request);
  ASSERT_TRUE(h.Plan());
  const StepOutcome right = h.Answer(h.last);
  const auto refused = [&](auto&& change) {
    StepOutcome outcome = right;
    change(outcome);
    const Status status = h.Apply(outcome);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    return std::string(status.message());
  };
  EXPECT_EQ(refused([](StepOutcome& o) { o.step = 9; }),
            "a worker answers step 9, but 1 is the oldest in flight");
  EXPECT_EQ(refused([](StepOutcome& o) { o.sampled.clear(); }),
            "the outcome of step 1 lacks drawn tokens");
  EXPECT_EQ(refused([](StepOutcome& o) { o.sampled[0].slot = Slot(5); }),
            "the outcome of step 1 has a token of slot 5 where slot 0 was asked");
  refused([](StepOutcome& o) { o.sampled.push_back(o.sampled[0]); });
  refused([](StepOutcome& o) { o.prompt_logprobs.clear(); });
  refused([](StepOutcome& o) { o.prompt_logprobs[0].entries.pop_back(); });
  h.Finish();
  h.RunToEnd();
  EXPECT_EQ(h.FinishOf(id), "length");
}

}  // namespace
}  // namespace staffel::sched
