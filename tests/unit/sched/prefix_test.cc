// Prefix reuse as requests see it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/sched/harness.h"

namespace staffel::sched {
namespace {

int CachedTokens(Harness& h, std::vector<TokenId> prompt, const std::string& salt = "") {
  const RequestId id = h.Submit({.prompt = std::move(prompt), .max_tokens = 1, .cache_salt = salt});
  h.RunToEnd();
  return h.FirstOf(id).cached_tokens;
}

TEST(Prefix, FullBlocksAreFoundButNeverTheLastToken) {
  for (const auto& [length, want] : {std::pair{3, 0}, {4, 0}, {5, 4}, {8, 4}, {9, 8}, {11, 8}}) {
    Harness h(SmallConfig());
    EXPECT_EQ(CachedTokens(h, Tokens(0, length)), 0);
    EXPECT_EQ(CachedTokens(h, Tokens(0, length)), want) << "prompt of " << length;
  }
}

TEST(Prefix, GeneratedTokensAreFoundToo) {
  Harness h(SmallConfig());
  const RequestId first = h.Submit({.prompt = Tokens(0, 6), .max_tokens = 4});
  h.RunToEnd();
  std::vector<TokenId> next = Tokens(0, 6);
  for (TokenId token : h.TextOf(first)) next.push_back(token);
  next.push_back(50);
  EXPECT_EQ(CachedTokens(h, next), 8) << "token 9 was drawn, not computed";
}

TEST(Prefix, SaltsDoNotShare) {
  Harness h(SmallConfig());
  CachedTokens(h, Tokens(0, 9), "a");
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9), "b"), 0);
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9), ""), 0);
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9), "ab"), 0);
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9), "a"), 8);
  // A salt that looks like the bytes of a token.
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9), std::string("\0\0\0\0", 4)), 0);
}

TEST(Prefix, OrderAndEveryTokenCount) {
  Harness h(SmallConfig(256));
  const std::vector<TokenId> base = Tokens(0, 33);
  CachedTokens(h, base);
  std::vector<TokenId> reversed(base.rbegin(), base.rend());
  EXPECT_EQ(CachedTokens(h, reversed), 0);
  std::vector<TokenId> blocks_swapped = base;
  std::swap_ranges(blocks_swapped.begin() + 4, blocks_swapped.begin() + 8,
                   blocks_swapped.begin() + 8);
  EXPECT_EQ(CachedTokens(h, blocks_swapped), 4);
  for (int changed = 0; changed < 32; ++changed) {
    std::vector<TokenId> other = base;
    other[changed] = 900 + changed;
    EXPECT_EQ(CachedTokens(h, other), changed / 4 * 4) << "token " << changed;
  }
  EXPECT_EQ(CachedTokens(h, base), 32);
}

TEST(Prefix, SwitchedOffNothingIsFound) {
  Config config = SmallConfig();
  config.prefix_caching = false;
  Harness h(config);
  CachedTokens(h, Tokens(0, 9));
  EXPECT_EQ(CachedTokens(h, Tokens(0, 9)), 0);
  EXPECT_EQ(h.scheduler.stats().blocks_cached, 0);
  EXPECT_EQ(h.scheduler.stats().prefix_queries_tokens, 0u);
}

TEST(Prefix, IdenticalPromptsTogetherAreComputedOnce) {
  Config config = SmallConfig();
  config.chunk_tokens_max = 16;
  Harness h(config);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(h.Submit({.prompt = Tokens(0, 100), .max_tokens = 1}));
  h.RunToEnd();
  for (RequestId id : ids) EXPECT_EQ(h.FinishOf(id), "length");
  // The first computes 100; the others the last block each.
  EXPECT_EQ(h.computed_tokens, 100 + 5 * 4);
  EXPECT_EQ(h.FirstOf(ids[5]).cached_tokens, 96);
}

TEST(Prefix, TheLongerOfTwoGoesOnWhereTheyPart) {
  Harness h(SmallConfig());
  std::vector<TokenId> other = Tokens(0, 40);
  other.insert(other.end(), {500, 501, 502, 503, 504});
  h.Submit({.prompt = Tokens(0, 60), .max_tokens = 1});
  const RequestId b = h.Submit({.prompt = other, .max_tokens = 1});
  h.RunToEnd();
  EXPECT_EQ(h.FirstOf(b).cached_tokens, 40);
}

TEST(Prefix, OwedLogprobsAreComputed) {
  Harness h(SmallConfig());
  CachedTokens(h, Tokens(0, 20));
  GenerateRequest request{.prompt = Tokens(0, 20), .max_tokens = 1};
  request.sampling.prompt_logprobs = 2;
  const RequestId id = h.Submit(request);
  h.RunToEnd();
  const SeqEvent& first = h.FirstOf(id);
  EXPECT_EQ(first.cached_tokens, 0);
  ASSERT_EQ(first.prompt_logprobs.size(), 19u);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(first.prompt_logprobs[i].logprob, -static_cast<float>(i));
}

TEST(Prefix, RowsOfPromptLogprobsAreBoundedInAStep) {
  Config config = SmallConfig();
  config.prompt_logprob_rows_max = 10;
  EXPECT_EQ(config.LogitRowsMax(), 18);
  Harness h(config);
  GenerateRequest request{.prompt = Tokens(0, 26), .max_tokens = 1};
  request.sampling.prompt_logprobs = 0;
  const RequestId a = h.Submit(request);
  request.prompt = Tokens(100, 26);
  const RequestId b = h.Submit(request);
  const RequestId plain = h.Submit({.prompt = Tokens(200, 30), .max_tokens = 1});
  while (h.Step()) {
    int rows = 0;
    for (const Chunk& chunk : h.last.chunks) rows += chunk.prompt_logprobs ? chunk.count : 0;
    EXPECT_LE(rows, 10);
  }
  EXPECT_EQ(h.FirstOf(a).prompt_logprobs.size(), 25u);
  EXPECT_EQ(h.FirstOf(b).prompt_logprobs.size(), 25u);
  EXPECT_EQ(h.FinishOf(plain), "length");
}

TEST(Prefix, LogprobsReceivedBeforeAnEpochEndsAreNotOwedAgain) {
  Config config = SmallConfig();
  config.chunk_tokens_max = 8;
  Harness h(config);
  GenerateRequest request{.prompt = Tokens(0, 20), .max_tokens = 1};
  request.sampling.prompt_logprobs = 0;
  const RequestId id = h.Submit(request);
  h.Step();
  h.scheduler.BeginEpoch({.epoch = 2, .block_count = 64}, h.events);
  h.Step();
  EXPECT_FALSE(h.last.chunks[0].prompt_logprobs) << "rows 0 to 7 were received";
  h.RunToEnd();
  const auto& logprobs = h.FirstOf(id).prompt_logprobs;
  ASSERT_EQ(logprobs.size(), 19u);
  for (int i = 0; i < 19; ++i) EXPECT_EQ(logprobs[i].logprob, -static_cast<float>(i));
}

TEST(Prefix, EachRequestIsCountedOnceAlthoughPreempted) {
  Harness h(SmallConfig(/*block_count=*/8));
  for (int i = 0; i < 3; ++i) h.Submit({.prompt = Tokens(10 * i, 4), .max_tokens = 12});
  h.RunToEnd();
  const EngineStats& stats = h.scheduler.stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.prefix_queries_tokens, 12u);
  EXPECT_EQ(stats.prefix_hits_tokens, 0u);
  EXPECT_EQ(stats.prompt_tokens, 12u);
  EXPECT_EQ(stats.generation_tokens, 36u);
}

TEST(Prefix, IdleHoldsNothingButTheCache) {
  Harness h(SmallConfig());
  for (int i = 0; i < 12; ++i) CachedTokens(h, Tokens(100 * i, 20));
  const EngineStats& stats = h.scheduler.stats();
  EXPECT_EQ(stats.blocks_free, 4);
  EXPECT_EQ(stats.blocks_cached, 60) << "five full blocks of each";
  for (int i = 12; i < 30; ++i) CachedTokens(h, Tokens(100 * i, 20));
  EXPECT_EQ(h.free_blocks(), 64);
  EXPECT_EQ(CachedTokens(h, Tokens(100 * 29, 20)), 16) << "the youngest stay";
  EXPECT_EQ(CachedTokens(h, Tokens(0, 20)), 0) << "the oldest went";
}

}  // namespace
}  // namespace staffel::sched
