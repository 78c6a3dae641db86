// Sequences with a grammar.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/worker_world.h"

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Allows the token that follows the last one, the first of an answer being 10; 20 cannot be
// followed, and the source "bad" is refused. 14, 15 and 16 are forced together.
class CountingGrammars final : public grammar::Grammars {
 public:
  class Counting final : public grammar::SequenceGrammar {
   public:
    std::shared_ptr<const grammar::TokenMask> Mask() override {
      auto mask = std::make_shared<grammar::TokenMask>();
      mask->words.resize(2);
      if (next_ > 20) return mask;
      mask->words[next_ / 32] = 1u << (next_ % 32);
      mask->count = 1;
      mask->only = next_;
      return mask;
    }
    absl::Span<const TokenId> Forced() const override {
      static constexpr TokenId kForced[] = {14, 15, 16};
      if (next_ < 14 || next_ > 16) return {};
      return absl::MakeConstSpan(kForced).subspan(next_ - 14);
    }
    Status Append(TokenId token) override {
      if (token != next_) return absl::InvalidArgumentError("not allowed");
      ++next_;
      return absl::OkStatus();
    }

   private:
    TokenId next_ = 10;
  };
  Status Check(const grammar::GrammarSpec&) override { return absl::OkStatus(); }
  Result<std::unique_ptr<grammar::SequenceGrammar>> Begin(
      const grammar::GrammarSpec& spec) override {
    if (spec.source == "bad") return absl::InvalidArgumentError("it is bad");
    return std::make_unique<Counting>();
  }
};

TEST_F(WorkerTest, GrammarsDecideWhatIsDrawn) {
  grammars_ = std::make_shared<CountingGrammars>();
  Configure(1);
  const auto spec = [](const char* source) {
    grammar::GrammarSpec made;
    made.source = source;
    return std::make_shared<const grammar::GrammarSpec>(std::move(made));
  };
  StepPlan plan = Plan();
  // Fresh; back from a preemption with two tokens of its answer; without a grammar; refused.
  plan.new_sequences = {Greedy(0, {1, 2, 3}), Greedy(1, {1, 2, 10, 11}), Greedy(2, {1, 2, 3}),
                        Greedy(3, {1, 2, 3})};
  plan.new_sequences[1].prompt_count = 2;
  for (int i : {0, 1}) plan.new_sequences[i].sampling.grammar = spec("");
  plan.new_sequences[3].sampling.grammar = spec("bad");
  // A grammar that allows nothing else goes before min_tokens.
  plan.new_sequences[0].min_tokens = 5;
  plan.new_sequences[0].stop_tokens = {10};
  for (int i = 0; i < 4; ++i) {
    plan.block_appends.push_back({Slot(i), {BlockId(4 * i), BlockId(4 * i + 1)}});
    plan.chunks.push_back({Slot(i), 0, i == 1 ? 4 : 3, true});
  }
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  ASSERT_EQ(outcome.sampled.size(), 4u);
  EXPECT_EQ(outcome.sampled[0].token.token, 10);
  EXPECT_TRUE(outcome.sampled[0].complete);
  EXPECT_EQ(outcome.sampled[1].token.token, 12);
  EXPECT_FALSE(outcome.sampled[1].complete);
  EXPECT_EQ(outcome.sampled[2].token.token, FakeExecutable::Next({1, 2, 3}));
  EXPECT_THAT(std::string(outcome.sampled[3].error.message()), HasSubstr("it is bad"));
  plan = Plan();
  plan.released = {Slot(3)};
  plan.chunks = {{Slot(0), 3, 1, true}, {Slot(1), 4, 1, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].token.token, 11);
  EXPECT_EQ(outcome.sampled[1].token.token, 13);
  // Nothing may follow: the sequence ends with an error, the step does not.
  plan = Plan();
  plan.released = {Slot(0), Slot(1), Slot(2)};
  plan.new_sequences = {Greedy(0, {1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})};
  plan.new_sequences[0].prompt_count = 1;
  plan.new_sequences[0].sampling.grammar = spec("");
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1), BlockId(2), BlockId(3)}}};
  plan.chunks = {{Slot(0), 0, 12, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].error.code(), absl::StatusCode::kInternal);
}

TEST_F(WorkerTest, WhatAGrammarForcesIsToldAheadAndTakenAsKnown) {
  grammars_ = std::make_shared<CountingGrammars>();
  Configure(1);
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 10, 11, 12, 13}), Greedy(1, {1, 10, 11, 12, 13})};
  for (int i : {0, 1}) {
    plan.new_sequences[i].prompt_count = 1;
    plan.new_sequences[i].sampling.grammar = std::make_shared<const grammar::GrammarSpec>();
    plan.block_appends.push_back({Slot(i), {BlockId(4 * i), BlockId(4 * i + 1)}});
    plan.chunks.push_back({Slot(i), 0, 5, true});
  }
  plan.new_sequences[1].sampling.top_logprobs = 0;  // asks for what only a draw can tell
  StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].token.token, 14);
  EXPECT_EQ(outcome.sampled[0].forced, (std::vector<TokenId>{15, 16}));
  EXPECT_EQ(outcome.sampled[1].token.token, 14);
  EXPECT_TRUE(outcome.sampled[1].forced.empty());
  // The master takes them over for one sequence, in one chunk; the other one draws on.
  plan = Plan();
  plan.forced_tokens = {{Slot(0), 6, 15}, {Slot(0), 7, 16}};
  plan.chunks = {{Slot(1), 5, 1, true}, {Slot(0), 5, 3, true}};
  outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].token.token, 15);
  EXPECT_EQ(outcome.sampled[1].token.token, 17);
  EXPECT_TRUE(outcome.sampled[1].forced.empty());
}

TEST_F(WorkerTest, AGrammarWithoutGrammarsIsTheSequencesError) {
  StepPlan plan = Plan();
  plan.new_sequences = {Greedy(0, {1, 2, 3})};
  plan.new_sequences[0].sampling.grammar = std::make_shared<const grammar::GrammarSpec>();
  plan.block_appends = {{Slot(0), {BlockId(0), BlockId(1)}}};
  plan.chunks = {{Slot(0), 0, 3, true}};
  const StepOutcome outcome = worker_.Run(plan);
  ASSERT_TRUE(outcome.status.ok()) << outcome.status;
  EXPECT_EQ(outcome.sampled[0].error.code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace staffel
