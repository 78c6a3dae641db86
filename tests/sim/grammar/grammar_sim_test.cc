// Random schemas, random models, and everything between them that is real: scheduler, workers with
// their mirrors, grammars and sampler. Pools are small, draws are in flight, epochs end at random;
// each answer must be valid all the same, and the one that the request gets alone.
// STAFFEL_SEED=n runs world n alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/strings.h"
#include "grammar/grammar_cache.h"
#include "grammar/matcher.h"
#include "nlohmann/json.hpp"
#include "sched/scheduler.h"
#include "tests/sim/fake_model.h"
#include "tests/unit/grammar/schema_maker.h"
#include "tests/unit/grammar/validator.h"
#include "worker/worker.h"

namespace staffel::sim {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kSchemas = 2000;
constexpr int kModelLen = 160;

class StillClock final : public Clock {
 public:
  Time Now() const override { return Time(std::chrono::hours(1)); }
};

const grammar::Vocabulary& Vocabulary() {
  static const std::shared_ptr<const grammar::Vocabulary> vocabulary = grammar::WalkVocabulary();
  return *vocabulary;
}
std::shared_ptr<const grammar::Vocabulary> SharedVocabulary() {
  return {std::shared_ptr<void>(), &Vocabulary()};
}

// The longest pieces that fit.
std::vector<TokenId> Spell(std::string_view text) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    TokenId best = static_cast<uint8_t>(text[0]);
    for (TokenId token = 256; token < Vocabulary().size(); ++token) {
      const std::string_view bytes = Vocabulary().bytes(token);
      if (!bytes.empty() && text.starts_with(bytes) &&
          bytes.size() > Vocabulary().bytes(best).size()) {
        best = token;
      }
    }
    tokens.push_back(best);
    text.remove_prefix(Vocabulary().bytes(best).size());
  }
  return tokens;
}

// Logits are a hash of the prefix as it stands in the KV. Long answers want to end.
class RandomModel final : public Executable {
 public:
  RandomModel(uint64_t seed, int block_size, int block_count)
      : seed_(seed), block_size_(block_size), kv_(static_cast<size_t>(block_size) * block_count) {}
  Status Run(const BatchTensors& batch) override {
    for (const BlockCopy& copy : batch.block_copies) {
      for (int i = 0; i < block_size_; ++i) {
        kv_[copy.target.value * block_size_ + i] = kv_[copy.source.value * block_size_ + i];
      }
    }
    std::vector<std::pair<uint64_t, int>> rows(batch.tokens.size());  // prefix, position
    for (const BatchTensors::Sequence& sequence : batch.sequences) {
      for (int i = 0; i < sequence.row_count; ++i) {
        const int row = sequence.row_begin + i, position = sequence.start + i;
        const auto cell = [&](int p) -> TokenId& {
          return kv_[sequence.blocks[p / block_size_].value * block_size_ + p % block_size_];
        };
        cell(position) = batch.tokens[row];
        uint64_t prefix = seed_;
        for (int p = 0; p <= position; ++p) prefix = ExtendPrefix(prefix, cell(p));
        rows[row] = {prefix, position};
      }
    }
    logits_.clear();
    for (int row : batch.sampled_rows)
      logits_.push_back(LogitsOf(rows[row].first, rows[row].second));
    return absl::OkStatus();
  }
  absl::Span<float> logits(int row) override { return absl::MakeSpan(logits_[row]); }
  absl::Span<const float> hidden(int) override { return {}; }
  int64_t weight_bytes() const override { return 0; }

 private:
  std::vector<float> LogitsOf(uint64_t prefix, int position) const {
    static const std::vector<bool> kEnds = [] {
      std::vector<bool> ends;
      for (TokenId token = 0; token < Vocabulary().size(); ++token) {
        const std::string_view bytes = Vocabulary().bytes(token);
        ends.push_back(Vocabulary().IsEnd(token) || bytes == "\"" || bytes == "}" || bytes == "]");
      }
      return ends;
    }();
    std::vector<float> logits(Vocabulary().size());
    for (TokenId token = 0; token < Vocabulary().size(); ++token) {
      logits[token] = static_cast<float>(MixDigest(prefix, token) % 400) / 100;
      if (kEnds[token] && position > static_cast<int>(seed_ % 60)) logits[token] += 12;
    }
    return logits;
  }
  const uint64_t seed_;
  const int block_size_;
  std::vector<TokenId> kv_;  // [block_count, block_size]
  std::vector<std::vector<float>> logits_;
};

// A scheduler, a worker that draws, and one that is told.
class Replica {
 public:
  Replica(uint64_t model_seed, const sched::Config& config,
          std::shared_ptr<grammar::Grammars> grammars)
      : config_(config), scheduler_(config) {
    for (Worker* worker : {&drawing_, &told_}) {
      WorkerSetup setup;
      setup.epoch = config.first_epoch;
      setup.vocab = Vocabulary().size();
      setup.options.block_size = config.block_size;
      setup.options.block_count = config.block_count;
      setup.options.max_rows = config.tokens_per_step_max;
      setup.options.max_sampled_rows = config.LogitRowsMax();
      setup.options.max_positions = config.max_model_len;
      setup.executable =
          std::make_unique<RandomModel>(model_seed, config.block_size, config.block_count);
      setup.samples = worker == &drawing_;
      if (setup.samples) setup.grammars = grammars;
      EXPECT_TRUE(worker->Configure(std::move(setup)).ok());
    }
  }
  void Submit(GenerateRequest request) {
    const Status status = scheduler_.Submit(std::move(request));
    EXPECT_TRUE(status.ok()) << status;
  }
  // Plans or takes an outcome; false: nothing is left to do.
  bool Turn(bool plans) {
    std::vector<SeqEvent> events;
    std::optional<StepPlan> plan;
    if (plans || in_flight_.empty()) plan = scheduler_.Plan(events);
    const bool worked = plan.has_value() || !in_flight_.empty();
    if (plan) {
      forced += static_cast<int>(plan->forced_tokens.size());
      in_flight_.push_back(*std::move(plan));
    } else if (!in_flight_.empty()) {
      StepOutcome outcome = drawing_.Run(in_flight_.front());
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      if (config_.relay_tokens) {
        const StepOutcome other = told_.Run(in_flight_.front());
        EXPECT_TRUE(other.status.ok()) << other.status;
      }
      in_flight_.pop_front();
      const Status applied = scheduler_.Apply(std::move(outcome), events);
      EXPECT_TRUE(applied.ok()) << applied;
    }
    scheduler_.CheckInvariants();
    Take(events);
    return worked;
  }
  // The workers are gone; others come.
  void LoseEpoch() {
    in_flight_.clear();
    ++epoch_;
    std::vector<SeqEvent> events;
    scheduler_.BeginEpoch({.epoch = epoch_,
                           .block_count = config_.block_count,
                           .promised_tokens_max = config_.promised_tokens_max,
                           .relay_tokens = config_.relay_tokens},
                          events);
    EXPECT_TRUE(drawing_.BeginEpoch(epoch_).ok() && told_.BeginEpoch(epoch_).ok());
    Take(events);
  }

  struct Answer {
    std::vector<TokenId> tokens;
    std::optional<FinishReason> finish;
    Status error;
  };
  std::map<std::pair<uint64_t, int>, Answer> answers;  // by request and index
  int forced = 0;
  uint64_t preemptions() { return scheduler_.stats().preemptions; }

 private:
  void Take(const std::vector<SeqEvent>& events) {
    for (const SeqEvent& event : events) {
      Answer& answer = answers[{event.request.value, event.index}];
      EXPECT_FALSE(answer.finish.has_value()) << "an event behind the end";
      for (const GeneratedToken& token : event.tokens) answer.tokens.push_back(token.token);
      answer.finish = event.finish;
      answer.error = event.error;
    }
  }

  const sched::Config config_;
  StillClock clock_;
  sched::Scheduler scheduler_;
  Worker drawing_{clock_}, told_{clock_};
  std::deque<StepPlan> in_flight_;
  int epoch_ = 1;
};

std::string TextOf(const std::vector<TokenId>& tokens) {
  std::string text;
  for (TokenId token : tokens) {
    if (!Vocabulary().IsEnd(token)) text += Vocabulary().bytes(token);
  }
  return text;
}

struct Totals {
  int schemas = 0, answers = 0, complete = 0, forced = 0, losses = 0;
  uint64_t preemptions = 0;
};

// What is wrong with an answer; empty: nothing.
std::string Judge(const Replica::Answer& answer, const Json& schema, grammar::Grammars& grammars,
                  const grammar::GrammarSpec& spec) {
  if (!answer.finish) return "it did not end";
  const std::string text = TextOf(answer.tokens);
  if (*answer.finish == FinishReason::kStop) {
    const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (value.is_discarded()) return StrCat("no JSON: ", text);
    return grammar::IsValid(value, schema, schema) ? "" : StrCat("not valid: ", text);
  }
  if (*answer.finish != FinishReason::kLength) {
    return StrCat("it ended with ", std::string(answer.error.message()));
  }
  auto sequence = *grammars.Begin(spec);
  for (TokenId token : answer.tokens) {
    if (!sequence->Append(token).ok()) return StrCat("no way to a valid text: ", text);
  }
  return "";
}

void RunWorld(uint64_t seed, Totals& totals) {
  SCOPED_TRACE(StrCat("STAFFEL_SEED=", seed));
  Random random(seed);
  const Json schema = grammar::SchemaMaker(seed).Schema();
  grammar::GrammarSpec spec;
  spec.kind = grammar::GrammarSpec::Kind::kJsonSchema;
  spec.source = schema.dump();
  spec.space = random.Percent(50) ? grammar::JsonSpace::kNone : grammar::JsonSpace::kFlexible;
  const auto grammars = std::make_shared<grammar::GrammarCache>(SharedVocabulary(), Spell);
  if (!grammars->Check(spec).ok()) return;  // no text satisfies it
  ++totals.schemas;

  sched::Config config;
  config.block_size = random.Between(1, 8);
  config.max_model_len = kModelLen;
  config.max_sequences = random.Between(1, 6);
  config.chunk_tokens_max = random.Between(1, 40);
  config.step_stretch_percent = 0;
  config.relay_tokens = random.Percent(40);
  config.promised_tokens_max = config.relay_tokens ? 1 : random.Between(1, 3);
  config.prefix_caching = random.Percent(80);
  const int needed = (kModelLen + config.block_size - 1) / config.block_size;
  config.block_count = random.Percent(60) ? needed + random.Between(0, 4) : 4 * needed;
  Replica replica(seed, config, grammars);

  std::vector<GenerateRequest> requests;
  for (int i = random.Between(1, 4); i > 0; --i) {
    GenerateRequest request;
    request.id = RequestId(i);
    for (int n = random.Between(1, 20); n > 0; --n)
      request.prompt.push_back(random.Between(97, 99));
    request.n = random.Percent(60) ? 1 : random.Between(2, 3);
    request.max_tokens = random.Percent(80) ? 130 : random.Between(1, 30);
    request.stop_tokens.assign(Vocabulary().end_tokens().begin(), Vocabulary().end_tokens().end());
    request.sampling.temperature = random.Percent(30) ? 0 : 1;
    request.sampling.seed = seed + i;
    request.sampling.grammar = std::make_shared<const grammar::GrammarSpec>(spec);
    requests.push_back(request);
    replica.Submit(std::move(request));
  }
  int turns = 0;
  while (replica.Turn(random.Percent(60))) {
    ASSERT_LT(++turns, 100'000);
    if (::testing::Test::HasFailure()) return;
    if (random.Between(0, 199) > 0) continue;
    replica.LoseEpoch();
    ++totals.losses;
  }
  totals.forced += replica.forced;
  totals.preemptions += replica.preemptions();

  // Alone, in a pool that is large, a draw at a time.
  sched::Config ample;
  ample.block_count = 4 * kModelLen;
  ample.max_model_len = kModelLen;
  for (const GenerateRequest& request : requests) {
    Replica alone(seed, ample, grammars);
    alone.Submit(request);
    while (alone.Turn(false)) {
    }
    for (int index = 0; index < request.n; ++index) {
      const std::pair<uint64_t, int> key = {request.id.value, index};
      const Replica::Answer& answer = replica.answers[key];
      ASSERT_EQ(Judge(answer, schema, *grammars, spec), "") << spec.source;
      ASSERT_EQ(TextOf(answer.tokens), TextOf(alone.answers[key].tokens)) << spec.source;
      ASSERT_EQ(answer.tokens, alone.answers[key].tokens) << spec.source;
      ++totals.answers;
      totals.complete += *answer.finish == FinishReason::kStop;
    }
  }
}

TEST(GrammarSimulation, EveryAnswerIsValid) {
  Totals totals;
  if (const char* seed = std::getenv("STAFFEL_SEED")) {
    RunWorld(std::strtoull(seed, nullptr, 10), totals);
    return;
  }
  for (uint64_t seed = 1; seed <= kSchemas && !HasFailure(); ++seed) RunWorld(seed, totals);
  std::cout << totals.schemas << " schemas, " << totals.answers << " answers, " << totals.complete
            << " complete, " << totals.forced << " forced tokens, " << totals.preemptions
            << " preemptions, " << totals.losses << " lost epochs\n";
  EXPECT_GT(totals.schemas, static_cast<int>(kSchemas) * 9 / 10);
  EXPECT_GT(totals.complete, totals.answers / 2);
  EXPECT_GT(totals.forced, static_cast<int>(kSchemas));
  EXPECT_GT(totals.preemptions, kSchemas / 20);
  EXPECT_GT(totals.losses, static_cast<int>(kSchemas) / 20);
}

}  // namespace
}  // namespace staffel::sim
