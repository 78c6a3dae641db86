#include "worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <utility>

namespace staffel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 50;
constexpr int kBlockSize = 4;

// A model whose KV stores token ids: the next token is a hash of the prefix as read back through
// the block table, so that a wrong row, position, table or copy changes the answer.
class FakeExecutable final : public Executable {
 public:
  Status Run(const BatchTensors& batch) override {
    ++runs;
    waited_s += wait_s_per_run;
    if (fail_next) return absl::UnavailableError("the device is gone");
    last_tokens.assign(batch.tokens.begin(), batch.tokens.end());
    for (const BlockCopy& copy : batch.block_copies) {
      for (int i = 0; i < kBlockSize; ++i) {
        kv_[{copy.target.value, i}] = kv_[{copy.source.value, i}];
      }
    }
    std::vector<uint64_t> prefix_of_row(batch.tokens.size());
    for (const BatchTensors::Sequence& sequence : batch.sequences) {
      for (int i = 0; i < sequence.row_count; ++i) {
        const int row = sequence.row_begin + i, position = sequence.start + i;
        EXPECT_EQ(batch.positions[row], position);
        kv_[{sequence.blocks[position / kBlockSize].value, position % kBlockSize}] =
            batch.tokens[row];
        uint64_t hash = 0;
        for (int p = 0; p <= position; ++p) {
          hash = Mix(hash, kv_[{sequence.blocks[p / kBlockSize].value, p % kBlockSize}]);
        }
        prefix_of_row[row] = hash;
      }
    }
    logits_.clear();
    for (int row : batch.sampled_rows) {
      std::vector<float>& logits = logits_.emplace_back(kVocab, 0.0f);
      for (int t = 0; t < kVocab; ++t) {
        logits[t] = static_cast<float>(Mix(prefix_of_row[row], t) % 1000) / 100;
      }
      logits[prefix_of_row[row] % kVocab] = 20;
      if (nan_at_run == runs) logits[7] = std::nanf("");
    }
    return absl::OkStatus();
  }
  absl::Span<float> logits(int row) override { return absl::MakeSpan(logits_[row]); }
  int64_t weight_bytes() const override { return 0; }

  static uint64_t Mix(uint64_t hash, int token) {
    return (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u >> 7;
  }
  static TokenId Next(const std::vector<TokenId>& prefix) {
    uint64_t hash = 0;
    for (TokenId token : prefix) hash = Mix(hash, token);
    return static_cast<TokenId>(hash % kVocab);
  }

  int runs = 0;
  double waited_s = 0, wait_s_per_run = 0;
  std::vector<TokenId> last_tokens;
  bool fail_next = false;
  int nan_at_run = -1;

 private:
  std::map<std::pair<int, int>, int> kv_;  // (block, offset) -> token
  std::vector<std::vector<float>> logits_;
};

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override { Configure(1); }

  void Configure(int epoch, bool samples = true) { Configure(epoch, samples, {}, -1); }
  void Configure(int epoch, bool samples, std::vector<int> draws_to, int draws_from) {
    auto executable = std::make_unique<FakeExecutable>();
    executable_ = executable.get();
    group_.executable = executable_;
    WorkerSetup setup;
    setup.epoch = epoch;
    setup.vocab = kVocab;
    setup.options.block_size = kBlockSize;
    setup.options.block_count = 32;
    setup.options.max_rows = 64;
    setup.options.max_sampled_rows = 16;
    setup.options.max_positions = 64;
    setup.executable = std::move(executable);
    setup.samples = samples;
    setup.draws_to = std::move(draws_to);
    setup.draws_from = draws_from;
    setup.group = &group_;
    setup.grammars = grammars_;
    EXPECT_TRUE(worker_.Configure(std::move(setup)).ok());
    step_ = 0;
    epoch_ = epoch;
  }
  StepPlan Plan() {
    StepPlan plan;
    plan.epoch = epoch_;
    plan.step = ++step_;
    return plan;
  }
  static NewSequence Greedy(int slot, std::vector<TokenId> tokens) {
    NewSequence added;
    added.slot = Slot(slot);
    added.prompt_count = static_cast<int>(tokens.size());
    added.tokens = std::move(tokens);
    added.sampling.temperature = 0;
    return added;
  }

  // Says how long the executable has waited for others.
  class Group final : public Communicator {
   public:
    int rank() const override { return 0; }
    int size() const override { return 1; }
    Status AllReduceSum(absl::Span<float>) override { return absl::OkStatus(); }
    Status Send(int to, absl::Span<const float> data) override {
      mail.push_back({to, {data.begin(), data.end()}});
      return absl::OkStatus();
    }
    Status Recv(int from, absl::Span<float> data) override {
      if (mail.empty() || mail[0].first != from || mail[0].second.size() != data.size()) {
        return absl::UnavailableError("nothing has come");
      }
      std::copy(mail[0].second.begin(), mail[0].second.end(), data.begin());
      mail.erase(mail.begin());
      return absl::OkStatus();
    }
    void Abort() override {}
    CommStats stats() const override { return {.wait_s = executable->waited_s}; }
    const FakeExecutable* executable = nullptr;
    std::vector<std::pair<int, std::vector<float>>> mail;  // {rank, message}
  };
  struct SteppingClock final : Clock {
    Time Now() const override { return now += std::chrono::milliseconds(10); }
    mutable Time now{};
  };

  SteppingClock clock_;
  Group group_;
  std::shared_ptr<grammar::Grammars> grammars_;
  Worker worker_{clock_};
  FakeExecutable* executable_ = nullptr;
  uint64_t step_ = 0;
  int epoch_ = 0;
};

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
