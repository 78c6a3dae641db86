#include "transport/proto/step_codec.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>
#include <limits>
#include <random>

#include "tests/support/seed.h"

namespace staffel {
namespace {

// Values of the kinds that occur: small, large, edges.
class Maker {
 public:
  explicit Maker(uint64_t seed) : random_(seed) {}

  int Count(int max) { return static_cast<int>(random_() % (max + 1)); }
  bool Bool() { return random_() % 2 == 0; }
  int Number() {
    switch (random_() % 4) {
      case 0:
        return 0;
      case 1:
        return std::numeric_limits<int>::max();
      case 2:
        return static_cast<int>(random_() % 200);
      default:
        return static_cast<int>(random_() >> 33);
    }
  }
  float Float() {
    switch (random_() % 4) {
      case 0:
        return 0;
      case 1:
        return -std::numeric_limits<float>::infinity();
      default:
        return static_cast<float>(Number()) / 1000 - 5;
    }
  }
  uint64_t Word() { return Bool() ? random_() : random_() % 100; }
  std::vector<TokenId> Tokens() {
    std::vector<TokenId> tokens(Count(20));
    for (TokenId& token : tokens) token = Number();
    return tokens;
  }
  std::vector<TokenLogprob> Top() {
    std::vector<TokenLogprob> top(Count(5));
    for (TokenLogprob& entry : top) entry = {Number(), Float()};
    return top;
  }

  StepPlan Plan() {
    StepPlan plan;
    plan.epoch = Number();
    plan.step = Word();
    for (int i = Count(3); i > 0; --i) plan.released.push_back(Slot(Number()));
    for (int i = Count(3); i > 0; --i) plan.new_sequences.push_back(Sequence());
    for (int i = Count(3); i > 0; --i) {
      BlockAppend& append = plan.block_appends.emplace_back();
      append.slot = Slot(Number());
      for (int j = Count(5); j > 0; --j) append.blocks.push_back(BlockId(Number()));
    }
    for (int i = Count(3); i > 0; --i) {
      plan.block_copies.push_back({BlockId(Number()), BlockId(Number())});
    }
    for (int i = Count(6); i > 0; --i) {
      plan.chunks.push_back({Slot(Number()), Number(), Bool() ? 1 : Number(), Bool(), Bool()});
    }
    AddKnownTokens(plan);
    for (int i = Count(3); i > 0; --i) {
      plan.forced_tokens.push_back({Slot(Number()), Number(), Number()});
    }
    plan.digest = Word();
    return plan;
  }
  // Mostly what the decode chunks compute, in order; sometimes anything.
  void AddKnownTokens(StepPlan& plan) {
    for (const Chunk& chunk : plan.chunks) {
      if (Count(2) > 0) plan.known_tokens.push_back({chunk.slot, chunk.start, Number()});
    }
    if (Count(2) > 0) return;
    for (int i = Count(3); i > 0; --i) {
      plan.known_tokens.push_back({Slot(Number()), Number(), Number()});
    }
  }

  StepOutcome Outcome() {
    StepOutcome outcome;
    outcome.epoch = Number();
    outcome.step = Word();
    if (Bool()) outcome.status = absl::UnavailableError("rank 3 is gone \xff");
    for (int i = Count(5); i > 0; --i) {
      outcome.sampled.push_back({Slot(Number()), {Number(), Float(), Top()}, absl::OkStatus()});
      if (Bool()) outcome.sampled.back().error = absl::InternalError("NaN");
      for (int n = Count(3); n > 0; --n) outcome.sampled.back().forced.push_back(Number());
      outcome.sampled.back().complete = Bool();
    }
    for (int i = Count(3); i > 0; --i) {
      PromptLogprobs& logprobs = outcome.prompt_logprobs.emplace_back();
      logprobs.slot = Slot(Number());
      logprobs.start = Number();
      for (int j = Count(5); j > 0; --j) logprobs.entries.push_back({Float(), Number(), Top()});
    }
    for (int i = Count(3); i > 0; --i) {
      Embedding& embedding = outcome.embeddings.emplace_back();
      embedding.slot = Slot(Number());
      for (int j = Count(9); j > 0; --j) embedding.values.push_back(Float());
    }
    outcome.compute_s = Count(1000) / 1000.0;
    return outcome;
  }

 private:
  NewSequence Sequence() {
    NewSequence sequence;
    sequence.slot = Slot(Number());
    sequence.tokens = Tokens();
    sequence.prompt_count = Number();
    sequence.sequence_index = Number();
    SamplingParams& p = sequence.sampling;
    for (float* field : {&p.temperature, &p.top_p, &p.min_p, &p.presence_penalty,
                         &p.frequency_penalty, &p.repetition_penalty}) {
      *field = Float();
    }
    p.top_k = Number();
    p.seed = Word();
    for (int i = Count(4); i > 0; --i) p.logit_bias.push_back({Number(), Float()});
    p.allowed_tokens = Tokens();
    for (int i = Count(3); i > 0; --i) p.banned_sequences.push_back(Tokens());
    p.top_logprobs = Bool() ? -1 : Number();
    p.prompt_logprobs = Bool() ? -1 : Number();
    if (Bool()) {
      grammar::GrammarSpec spec;
      spec.kind = grammar::GrammarSpec::Kind::kTags;
      spec.source = std::string(Count(9), '\xFF');
      for (int i = Count(3); i > 0; --i) spec.choices.push_back(std::string(i, 'c'));
      for (int i = Count(3); i > 0; --i) spec.triggers.push_back(std::string(i, '<'));
      for (int i = Count(3); i > 0; --i)
        spec.tags.push_back({"<a>", "{}", std::string(i, '>'),
                             Bool() ? grammar::ValueForm::kXml : grammar::ValueForm::kJson});
      spec.tag_required = Bool();
      spec.single_tag = Bool();
      for (std::string* literal : {&spec.list_begin, &spec.list_separator, &spec.list_end,
                                   &spec.text_begin, &spec.reasoning_begin, &spec.reasoning_end}) {
        *literal = std::string(Count(3), '\xFE');
      }
      spec.reasoning_open = Bool();
      spec.leading_tags = Bool();
      spec.reasoning_tokens_max = Count(3) - 1;
      spec.space = Bool() ? grammar::JsonSpace::kNone : grammar::JsonSpace::kFlexible;
      p.grammar = std::make_shared<const grammar::GrammarSpec>(std::move(spec));
    }
    sequence.min_tokens = Number();
    sequence.stop_tokens = Tokens();
    sequence.pooling = static_cast<Pooling>(Count(2));
    return sequence;
  }

  std::mt19937_64 random_;
};

void ExpectEqual(const std::vector<TokenLogprob>& a, const std::vector<TokenLogprob>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].token, b[i].token);
    EXPECT_EQ(a[i].logprob, b[i].logprob);
  }
}

void ExpectEqual(const SamplingParams& a, const SamplingParams& b) {
  EXPECT_EQ(a.temperature, b.temperature);
  EXPECT_EQ(a.top_p, b.top_p);
  EXPECT_EQ(a.top_k, b.top_k);
  EXPECT_EQ(a.min_p, b.min_p);
  EXPECT_EQ(a.presence_penalty, b.presence_penalty);
  EXPECT_EQ(a.frequency_penalty, b.frequency_penalty);
  EXPECT_EQ(a.repetition_penalty, b.repetition_penalty);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.allowed_tokens, b.allowed_tokens);
  EXPECT_EQ(a.banned_sequences, b.banned_sequences);
  ASSERT_EQ(a.logit_bias.size(), b.logit_bias.size());
  for (size_t i = 0; i < a.logit_bias.size(); ++i) {
    EXPECT_EQ(a.logit_bias[i].token, b.logit_bias[i].token);
    EXPECT_EQ(a.logit_bias[i].bias, b.logit_bias[i].bias);
  }
  EXPECT_EQ(a.top_logprobs, b.top_logprobs);
  EXPECT_EQ(a.prompt_logprobs, b.prompt_logprobs);
  ASSERT_EQ(a.grammar == nullptr, b.grammar == nullptr);
  if (a.grammar == nullptr) return;
  EXPECT_TRUE(*a.grammar == *b.grammar);
}

void ExpectEqual(const StepPlan& a, const StepPlan& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.released, b.released);
  EXPECT_EQ(a.digest, b.digest);
  ASSERT_EQ(a.known_tokens.size(), b.known_tokens.size());
  for (size_t i = 0; i < a.known_tokens.size(); ++i) {
    EXPECT_EQ(a.known_tokens[i].slot, b.known_tokens[i].slot);
    EXPECT_EQ(a.known_tokens[i].position, b.known_tokens[i].position);
    EXPECT_EQ(a.known_tokens[i].token, b.known_tokens[i].token);
  }
  ASSERT_EQ(a.forced_tokens.size(), b.forced_tokens.size());
  for (size_t i = 0; i < a.forced_tokens.size(); ++i) {
    EXPECT_EQ(a.forced_tokens[i].slot, b.forced_tokens[i].slot);
    EXPECT_EQ(a.forced_tokens[i].position, b.forced_tokens[i].position);
    EXPECT_EQ(a.forced_tokens[i].token, b.forced_tokens[i].token);
  }
  ASSERT_EQ(a.new_sequences.size(), b.new_sequences.size());
  for (size_t i = 0; i < a.new_sequences.size(); ++i) {
    const NewSequence &x = a.new_sequences[i], &y = b.new_sequences[i];
    EXPECT_EQ(x.slot, y.slot);
    EXPECT_EQ(x.tokens, y.tokens);
    EXPECT_EQ(x.prompt_count, y.prompt_count);
    EXPECT_EQ(x.sequence_index, y.sequence_index);
    ExpectEqual(x.sampling, y.sampling);
    EXPECT_EQ(x.min_tokens, y.min_tokens);
    EXPECT_EQ(x.stop_tokens, y.stop_tokens);
    EXPECT_EQ(x.pooling, y.pooling);
  }
  ASSERT_EQ(a.block_appends.size(), b.block_appends.size());
  for (size_t i = 0; i < a.block_appends.size(); ++i) {
    EXPECT_EQ(a.block_appends[i].slot, b.block_appends[i].slot);
    EXPECT_EQ(a.block_appends[i].blocks, b.block_appends[i].blocks);
  }
  ASSERT_EQ(a.block_copies.size(), b.block_copies.size());
  for (size_t i = 0; i < a.block_copies.size(); ++i) {
    EXPECT_EQ(a.block_copies[i].source, b.block_copies[i].source);
    EXPECT_EQ(a.block_copies[i].target, b.block_copies[i].target);
  }
  ASSERT_EQ(a.chunks.size(), b.chunks.size());
  for (size_t i = 0; i < a.chunks.size(); ++i) {
    EXPECT_EQ(a.chunks[i].slot, b.chunks[i].slot);
    EXPECT_EQ(a.chunks[i].start, b.chunks[i].start);
    EXPECT_EQ(a.chunks[i].count, b.chunks[i].count);
    EXPECT_EQ(a.chunks[i].samples, b.chunks[i].samples);
    EXPECT_EQ(a.chunks[i].prompt_logprobs, b.chunks[i].prompt_logprobs);
  }
}

void ExpectEqual(const StepOutcome& a, const StepOutcome& b) {
  EXPECT_EQ(a.epoch, b.epoch);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.status, b.status);
  EXPECT_EQ(a.compute_s, b.compute_s);
  ASSERT_EQ(a.sampled.size(), b.sampled.size());
  for (size_t i = 0; i < a.sampled.size(); ++i) {
    EXPECT_EQ(a.sampled[i].slot, b.sampled[i].slot);
    EXPECT_EQ(a.sampled[i].error, b.sampled[i].error);
    EXPECT_EQ(a.sampled[i].token.token, b.sampled[i].token.token);
    EXPECT_EQ(a.sampled[i].token.logprob, b.sampled[i].token.logprob);
    ExpectEqual(a.sampled[i].token.top, b.sampled[i].token.top);
    EXPECT_EQ(a.sampled[i].forced, b.sampled[i].forced);
    EXPECT_EQ(a.sampled[i].complete, b.sampled[i].complete);
  }
  ASSERT_EQ(a.embeddings.size(), b.embeddings.size());
  for (size_t i = 0; i < a.embeddings.size(); ++i) {
    EXPECT_EQ(a.embeddings[i].slot, b.embeddings[i].slot);
    EXPECT_EQ(a.embeddings[i].values, b.embeddings[i].values);
  }
  ASSERT_EQ(a.prompt_logprobs.size(), b.prompt_logprobs.size());
  for (size_t i = 0; i < a.prompt_logprobs.size(); ++i) {
    EXPECT_EQ(a.prompt_logprobs[i].slot, b.prompt_logprobs[i].slot);
    EXPECT_EQ(a.prompt_logprobs[i].start, b.prompt_logprobs[i].start);
    ASSERT_EQ(a.prompt_logprobs[i].entries.size(), b.prompt_logprobs[i].entries.size());
    for (size_t j = 0; j < a.prompt_logprobs[i].entries.size(); ++j) {
      EXPECT_EQ(a.prompt_logprobs[i].entries[j].logprob, b.prompt_logprobs[i].entries[j].logprob);
      EXPECT_EQ(a.prompt_logprobs[i].entries[j].rank, b.prompt_logprobs[i].entries[j].rank);
      ExpectEqual(a.prompt_logprobs[i].entries[j].top, b.prompt_logprobs[i].entries[j].top);
    }
  }
}

TEST(StepCodec, RandomPlansComeBackAsTheyWere) {
  Maker maker(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const StepPlan plan = maker.Plan();
    const std::string bytes = SerializePlan(plan);
    Result<StepPlan> back = ParsePlan(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectEqual(plan, *back);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    EXPECT_EQ(SerializePlan(*back), bytes);
  }
}

TEST(StepCodec, RandomOutcomesComeBackAsTheyWere) {
  Maker maker(TestSeed());
  for (int round = 0; round < 2000; ++round) {
    const StepOutcome outcome = maker.Outcome();
    const std::string bytes = SerializeOutcome(outcome);
    Result<StepOutcome> back = ParseOutcome(bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    ExpectEqual(outcome, *back);
    ASSERT_FALSE(HasFailure()) << "round " << round;
    EXPECT_EQ(SerializeOutcome(*back), bytes);
  }
}

TEST(StepCodec, DamagedBytesAreRefusedOrReadNeverWorse) {
  Maker maker(TestSeed());
  std::mt19937_64 random(TestSeed());
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bytes = SerializePlan(maker.Plan());
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    bytes.resize(random() % 3 == 0 ? random() % bytes.size() : bytes.size());
    refused += !ParsePlan(bytes).ok();
    (void)ParseOutcome(bytes);
  }
  EXPECT_GT(refused, 100);
  EXPECT_FALSE(ParsePlan("\xff\xff\xff").ok());
  EXPECT_TRUE(ParsePlan("").ok()) << "the plan of all defaults";
}

TEST(StepCodec, NumbersBeyondTheirTypeAreRefused) {
  std::string bytes = SerializePlan({.released = {Slot(5)}});
  // Field 3, packed, one varint: 2^32 - 1, the -1 of an id that is not set.
  EXPECT_FALSE(ParsePlan(SerializePlan({.released = {Slot(-1)}})).ok());
  EXPECT_TRUE(ParsePlan(bytes).ok());
}

TEST(StepCodec, ADecodeStepIsAFewBytesASequence) {
  for (int sequences : {1, 8, 64}) {
    StepPlan plan;
    plan.epoch = 1;
    plan.step = 123456;
    plan.digest = 0x123456789abcdef0;
    StepOutcome outcome;
    outcome.epoch = 1;
    outcome.step = 123456;
    outcome.compute_s = 0.01;
    for (int i = 0; i < sequences; ++i) {
      plan.chunks.push_back({Slot(i), 1000 + i, 1, true, false});
      if (i % 16 == 0) plan.block_appends.push_back({Slot(i), {BlockId(500 + i)}});
      outcome.sampled.push_back({Slot(i), {20000 + i}, absl::OkStatus()});
    }
    const size_t plan_bytes = SerializePlan(plan).size();
    const size_t outcome_bytes = SerializeOutcome(outcome).size();
    for (const Chunk& chunk : plan.chunks) {
      plan.known_tokens.push_back({chunk.slot, chunk.start, 20000 + chunk.slot.value});
    }
    const size_t told_bytes = SerializePlan(plan).size() - plan_bytes;
    std::cout << sequences << " sequences: plan " << plan_bytes << " bytes and " << told_bytes
              << " for known tokens, outcome " << outcome_bytes << " bytes\n";
    EXPECT_LE(told_bytes, 3u + 3 * sequences);
    EXPECT_LE(plan_bytes, 32u + 4 * sequences);
    EXPECT_LE(outcome_bytes, 32u + 8 * sequences);
  }
}

}  // namespace
}  // namespace staffel
