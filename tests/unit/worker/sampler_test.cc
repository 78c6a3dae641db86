#include "worker/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/support/seed.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams Greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

GeneratedToken Draw(std::vector<float> row, const SamplingParams& params, int position = 0,
                    const TokenCounts& counts = {}, std::vector<TokenId> banned = {},
                    int sequence_index = 0) {
  Sampler sampler;
  Result<GeneratedToken> drawn =
      sampler.Draw(absl::MakeSpan(row), {.params = &params,
                                         .sequence_index = sequence_index,
                                         .position = position,
                                         .counts = &counts,
                                         .banned = banned});
  EXPECT_TRUE(drawn.ok()) << drawn.status();
  return drawn.ok() ? *drawn : GeneratedToken{-1};
}

// Frequencies of the tokens over many positions.
std::map<TokenId, double> Frequencies(const std::vector<float>& row, const SamplingParams& params,
                                      int draws = 20000) {
  std::map<TokenId, double> frequencies;
  for (int position = 0; position < draws; ++position) {
    frequencies[Draw(row, params, position).token] += 1.0 / draws;
  }
  return frequencies;
}

std::set<TokenId> Drawn(const std::vector<float>& row, const SamplingParams& params) {
  std::set<TokenId> tokens;
  for (const auto& [token, frequency] : Frequencies(row, params, 3000)) tokens.insert(token);
  return tokens;
}

TEST(Sampler, GreedyTakesTheLowestOfTheBest) {
  EXPECT_EQ(Draw({1, 7, 7, 2}, Greedy()).token, 1);
  SamplingParams params;
  params.top_k = 1;
  params.temperature = 2;
  EXPECT_EQ(Draw({1, 7, 7, 2}, params).token, 1);
  params.top_k = 0;
  params.temperature = 1e-30f;
  EXPECT_EQ(Draw({1, 7, 7, 2}, params).token, 1);
}

TEST(Sampler, FrequenciesAreTheSoftmaxAtTheTemperature) {
  const std::vector<float> row = {0, 1, 2, -1};
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = TestSeed();
    double sum = 0;
    for (float x : row) sum += std::exp(x / temperature);
    for (const auto& [token, frequency] : Frequencies(row, params)) {
      EXPECT_NEAR(frequency, std::exp(row[token] / temperature) / sum, 0.015);
    }
  }
}

TEST(Sampler, TopKTopPMinPKeepTheRightTokens) {
  // Probabilities 0.5, 0.25, 0.125, 0.0625, 0.0625.
  const std::vector<float> row = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                  std::log(0.0625f), std::log(0.0625f)};
  SamplingParams params;
  params.top_k = 2;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1, 2));
  params.top_k = 0;
  params.top_p = 0.5f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1));
  params.top_p = 0.51f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1, 2));
  params.top_p = 0.9f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(0, 1, 2, 3));
  params.top_p = 1e-6f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1));
  params.top_p = 1.0f;
  params.min_p = 0.2f;  // of the best: 0.1
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(0, 1, 2));
  params.min_p = 1.0f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1));
  // top_p is of what top_k has left: 0.5 of 0.75 is two thirds.
  params.min_p = 0;
  params.top_k = 2;
  params.top_p = 0.6f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1));
  params.top_p = 0.7f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1, 2));
  params.min_p = 0.6f;
  EXPECT_THAT(Drawn(row, params), UnorderedElementsAre(1));
  params.top_k = 100;
  params.top_p = 1;
  params.min_p = 0;
  EXPECT_EQ(Drawn(row, params).size(), 5u);
}

TEST(Sampler, ANucleusOfThousandsIsFoundExactly) {
  // A flat distribution, where top_p needs more candidates than any first guess.
  std::vector<float> row(5000, 0.0f);
  row[4321] = 1e-3f;
  SamplingParams params;
  params.top_p = 0.5f;
  std::set<TokenId> drawn = Drawn(row, params);
  EXPECT_GT(drawn.size(), 1000u);
  for (TokenId token : drawn) EXPECT_TRUE(token < 2500 || token == 4321) << token;
  params.top_p = 0.02f;  // of small mass, too: mostly sorted in the end
  drawn = Drawn(row, params);
  EXPECT_EQ(drawn.size(), 100u);
  for (TokenId token : drawn) EXPECT_TRUE(token < 100 || token == 4321) << token;
}

TEST(Sampler, ALargeNucleusKeepsItsProportions) {
  // 200 tokens of weight 2 and 200 of weight 1; the nucleus of 5/6 of the mass holds all of the
  // first and half of the second.
  std::vector<float> row(400, 0.0f);
  for (int i = 0; i < 200; ++i) row[2 * i] = std::log(2.0f);
  SamplingParams params;
  params.top_p = 0.8333333f;
  params.min_p = 0.4f;
  double high = 0, low = 0;
  for (const auto& [token, frequency] : Frequencies(row, params)) {
    (token % 2 == 0 ? high : low) += frequency;
    EXPECT_TRUE(token % 2 == 0 || token <= 200) << token;
  }
  EXPECT_NEAR(high, 0.8, 0.01);
  EXPECT_NEAR(low, 0.2, 0.01);
  params.min_p = 0.6f;
  for (TokenId token : Drawn(row, params)) EXPECT_EQ(token % 2, 0);
}

TEST(Sampler, DrawsArePureFunctionsOfSeedSequenceAndPosition) {
  std::mt19937_64 random(TestSeed());
  std::vector<float> row(500);
  for (float& x : row) x = static_cast<float>(random() % 1000) / 300;
  for (float top_p : {1.0f, 0.9f}) {
    SamplingParams a, b;
    a.top_p = b.top_p = top_p;
    a.seed = 42;
    b.seed = 43;
    int other_seed = 0, other_index = 0, other_position = 0;
    for (int position = 0; position < 50; ++position) {
      const TokenId token = Draw(row, a, position).token;
      EXPECT_EQ(Draw(row, a, position).token, token);
      other_seed += Draw(row, b, position).token != token;
      other_index += Draw(row, a, position, {}, {}, 1).token != token;
      other_position += Draw(row, a, position + 1000).token != token;
    }
    EXPECT_GT(other_seed, 40);
    EXPECT_GT(other_index, 40);
    EXPECT_GT(other_position, 40);
  }
}

TEST(Sampler, LogitBiasBansAndForces) {
  SamplingParams params = Greedy();
  params.logit_bias = {{1, -100}};
  EXPECT_EQ(Draw({1, 7, 6, 2}, params).token, 2);
  params.logit_bias = {{3, 100}};
  EXPECT_EQ(Draw({1, 7, 6, 2}, params).token, 3);
  params.temperature = 1;
  EXPECT_EQ(Draw({1, 7, 6, 2}, params).token, 3);
  params.top_k = 1;
  EXPECT_EQ(Draw({1, 7, 6, 2}, params).token, 3);
}

TEST(Sampler, PenaltiesOverGeneratedAndPromptTokens) {
  TokenCounts counts;
  counts.AddPrompt(0);
  for (int i = 0; i < 3; ++i) counts.AddGenerated(1);
  counts.AddGenerated(2);
  SamplingParams params = Greedy();
  params.presence_penalty = 1.5f;  // {5, 4.5, 4.4, 4.6}
  EXPECT_EQ(Draw({4.0f, 6.0f, 5.9f, 4.6f}, params, 0, counts).token, 3);
  params.presence_penalty = 0;
  params.frequency_penalty = 1.0f;  // {4, 3, 4.9, 4.6}
  EXPECT_EQ(Draw({4.0f, 6.0f, 5.9f, 4.6f}, params, 0, counts).token, 2);
  params.frequency_penalty = 0;
  params.repetition_penalty = 2.0f;  // prompt too; negative logits grow more negative
  EXPECT_EQ(Draw({8.0f, -1.0f, -1.9f, 3.9f}, params, 0, counts).token, 0);
  EXPECT_EQ(Draw({7.0f, -1.0f, -1.9f, 3.9f}, params, 0, counts).token, 3);
  EXPECT_EQ(Draw({-7.0f, -1.0f, -1.5f, -1.9f}, params, 0, counts).token, 3);
}

TEST(Sampler, BannedTokensAreNeverDrawn) {
  EXPECT_EQ(Draw({1, 7, 6, 2}, Greedy(), 0, {}, {1, 2}).token, 3);
  SamplingParams params;
  for (int position = 0; position < 100; ++position) {
    EXPECT_EQ(Draw({1, 7, 6, 2}, params, position, {}, {0, 1, 2}).token, 3);
  }
}

TEST(Sampler, OnlyAllowedTokensAreDrawn) {
  SamplingParams params = Greedy();
  params.allowed_tokens = {0, 3};
  EXPECT_EQ(Draw({1, 9, 8, 2, 7}, params).token, 3);
  params.allowed_tokens = {4};
  EXPECT_EQ(Draw({1, 9, 8, 2, 7}, params).token, 4);
  params.allowed_tokens = {0, 1, 2, 3, 4};
  EXPECT_EQ(Draw({1, 9, 8, 2, 7}, params).token, 1);
  params = {};
  params.allowed_tokens = {0, 2, 4};
  params.seed = TestSeed();
  EXPECT_EQ(Drawn({1, 1, 1, 1, 1}, params), (std::set<TokenId>{0, 2, 4}));
}

TEST(Sampler, BannedSequencesAreNotCompleted) {
  const std::vector<float> row = {1, 9, 8, 2};
  SamplingParams params = Greedy();
  params.banned_sequences = {{1}};
  const auto draw = [&](std::vector<TokenId> generated) {
    Sampler sampler;
    std::vector<float> changed = row;
    return sampler.Draw(absl::MakeSpan(changed), {.params = &params, .generated = generated})
        ->token;
  };
  EXPECT_EQ(draw({}), 2);
  params.banned_sequences = {{3, 0, 1}, {0, 2}};
  EXPECT_EQ(draw({}), 1);
  EXPECT_EQ(draw({0}), 1);
  EXPECT_EQ(draw({3, 0}), 3) << "both end here: neither 1 nor 2";
  EXPECT_EQ(draw({3, 0, 3}), 1) << "the run is broken";
  EXPECT_EQ(draw({2, 3, 0, 3, 0}), 3);
}

TEST(Sampler, ARequestThatBansEveryTokenIsItsOwnFault) {
  SamplingParams params = Greedy();
  params.allowed_tokens = {2};
  params.banned_sequences = {{2}};
  std::vector<float> row = {1, 9, 8, 2};
  Sampler sampler;
  const auto drawn = sampler.Draw(absl::MakeSpan(row), {.params = &params});
  EXPECT_EQ(drawn.status().code(), absl::StatusCode::kInvalidArgument) << drawn.status();
}

TEST(Sampler, LogprobsAreThoseOfTheUnchangedRow) {
  const std::vector<float> row = {1, 3, 2, -4};
  double sum = 0;
  for (float x : row) sum += std::exp(x);
  TokenCounts counts;
  counts.AddGenerated(1);
  SamplingParams variants[5];
  for (SamplingParams& params : variants) params.top_logprobs = 2;
  variants[0].temperature = 0;
  variants[1].temperature = 0.5f;
  variants[2].top_k = 1;
  variants[3].logit_bias = {{0, 50}, {0, 1}};
  variants[4].presence_penalty = 2;
  variants[4].repetition_penalty = 1.5f;
  for (const SamplingParams& params : variants) {
    GeneratedToken drawn = Draw(row, params, 5, counts);
    EXPECT_NEAR(drawn.logprob, row[drawn.token] - std::log(sum), 1e-5);
    ASSERT_EQ(drawn.top.size(), 2u);
    EXPECT_EQ(drawn.top[0].token, 1);
    EXPECT_EQ(drawn.top[1].token, 2);
    EXPECT_NEAR(drawn.top[0].logprob, 3 - std::log(sum), 1e-5);
    EXPECT_NEAR(drawn.top[1].logprob, 2 - std::log(sum), 1e-5);
  }
  EXPECT_EQ(Draw(row, variants[3], 5, counts).token, 0);
}

TEST(Sampler, LogprobsAreNeverPositive) {
  SamplingParams params = Greedy();
  params.top_logprobs = 1;
  GeneratedToken drawn = Draw({1e4f, 0, 0}, params);
  EXPECT_LE(drawn.logprob, 0);
  EXPECT_LE(drawn.top[0].logprob, 0);
  EXPECT_NEAR(drawn.logprob, 0, 1e-6);
  params.top_logprobs = 0;
  drawn = Draw({1, 2, 3}, params);
  EXPECT_LT(drawn.logprob, 0);
  EXPECT_TRUE(drawn.top.empty());
}

TEST(Sampler, PromptLogprobs) {
  Sampler sampler;
  const std::vector<float> row = {0, std::log(3.0f)};
  Result<PromptLogprob> logprob = sampler.Logprob(row, 0, 1);
  ASSERT_TRUE(logprob.ok());
  EXPECT_NEAR(logprob->logprob, std::log(0.25), 1e-6);
  EXPECT_EQ(logprob->rank, 2);
  EXPECT_EQ(sampler.Logprob(row, 1, 1)->rank, 1);
  ASSERT_EQ(logprob->top.size(), 1u);
  EXPECT_EQ(logprob->top[0].token, 1);
  EXPECT_FALSE(sampler.Logprob({std::nanf(""), 1}, 0, 1).ok());
}

TEST(Sampler, RowsThatAllowNoTokenAreErrors) {
  Sampler sampler;
  SamplingParams params = Greedy();
  for (int top_logprobs : {-1, 3}) {
    params.top_logprobs = top_logprobs;
    std::vector<std::vector<float>> rows = {
        {1, std::nanf(""), 2}, {-kInfinity, -kInfinity}, {1, kInfinity}};
    for (std::vector<float>& row : rows) {
      Status status = sampler.Draw(absl::MakeSpan(row), {.params = &params}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
      EXPECT_THAT(std::string(status.message()), HasSubstr("no token can be drawn"));
    }
  }
}

}  // namespace
}  // namespace staffel
