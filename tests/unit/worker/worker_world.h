// A worker over a device that a test can look into: the fixture of this folder's tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "worker/worker.h"

namespace staffel {

inline constexpr int kVocab = 50;
inline constexpr int kBlockSize = 4;

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
    hidden_.clear();
    for (uint64_t prefix : prefix_of_row) {
      hidden_.push_back({static_cast<float>(prefix % 512), static_cast<float>(prefix / 512 % 512)});
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
  // Two whole numbers of a row's prefix, so that sums are exact.
  absl::Span<const float> hidden(int row) override { return hidden_[row]; }
  int64_t weight_bytes() const override { return 0; }

  static uint64_t Mix(uint64_t hash, int token) {
    return (hash ^ static_cast<uint64_t>(token + 1)) * 0x9e3779b97f4a7c15u >> 7;
  }
  static uint64_t Prefix(const std::vector<TokenId>& tokens) {
    uint64_t hash = 0;
    for (TokenId token : tokens) hash = Mix(hash, token);
    return hash;
  }
  static TokenId Next(const std::vector<TokenId>& prefix) {
    return static_cast<TokenId>(Prefix(prefix) % kVocab);
  }

  int runs = 0;
  double waited_s = 0, wait_s_per_run = 0;
  std::vector<TokenId> last_tokens;
  bool fail_next = false;
  int nan_at_run = -1;

 private:
  std::map<std::pair<int, int>, int> kv_;  // (block, offset) -> token
  std::vector<std::vector<float>> logits_, hidden_;
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

}  // namespace staffel
