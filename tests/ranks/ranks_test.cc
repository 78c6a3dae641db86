// The same tiny model cut in every way gives the same tokens: ranks are threads, their collectives
// comm/local, the sequences prefilled in chunks beside each other's decodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "comm/local/local_communicator.h"
#include "device/cpu/cpu_backend.h"
#include "device/ref/ref_backend.h"
#include "model/model.h"
#include "plan/placement.h"
#include "tests/support/fake_model.h"

namespace staffel {
namespace {

constexpr int kPositions = 64;

// What a model is run with: tokens of a block, and how much logits may differ between layouts.
struct Setup {
  Backend& backend;
  int block_size = 4;
  double bound = 1e-3;
};

struct Layout {
  int tp = 1, pp = 1;
  std::vector<double> speeds;  // of the ranks; empty: alike
};

// All ranks of one replica, stepped together.
class Cluster {
 public:
  static Result<std::unique_ptr<Cluster>> Create(const FakeModel& model, const Setup& setup,
                                                 const Layout& layout) {
    auto cluster = std::make_unique<Cluster>();
    STAFFEL_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(model));
    ClusterShape shape;
    shape.devices.resize(layout.tp * layout.pp);
    for (size_t i = 0; i < layout.speeds.size(); ++i) shape.devices[i].speed = layout.speeds[i];
    STAFFEL_ASSIGN_OR_RETURN(cluster->plan_,
                             MakePlacement(config.shape, shape, {layout.tp, layout.pp}));
    cluster->communicators_ = MakeLocalCommunicators(cluster->plan_.tensor_groups);
    for (const RankShard& shard : cluster->plan_.ranks) {
      STAFFEL_ASSIGN_OR_RETURN(Program program, BuildProgram(config, shard));
      BackendOptions options;
      options.block_size = setup.block_size;
      options.block_count = 2 * kPositions / setup.block_size;
      options.max_rows = 32;
      options.max_sampled_rows = 32;
      options.max_positions = kPositions;
      STAFFEL_ASSIGN_OR_RETURN(
          std::unique_ptr<Executable> executable,
          setup.backend.Prepare(program, model, cluster->communicators_[shard.rank].get(),
                                options));
      cluster->executables_.push_back(std::move(executable));
    }
    return cluster;
  }

  // Runs the batch on all ranks; row r of the logits is then on the first rank of the last stage.
  Status Run(const BatchTensors& batch) {
    std::vector<Status> statuses(executables_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < executables_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        statuses[rank] = executables_[rank]->Run(batch);
        if (!statuses[rank].ok()) communicators_[rank]->Abort();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) STAFFEL_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

  std::vector<float> Logits(int row) {
    const absl::Span<float> logits = sampler().logits(row);
    return {logits.begin(), logits.end()};
  }
  // Of row `row` of the batch.
  std::vector<float> Hidden(int row) {
    const absl::Span<const float> hidden = sampler().hidden(row);
    return {hidden.begin(), hidden.end()};
  }

 private:
  Executable& sampler() { return *executables_[plan_.tensor_groups.back().front()]; }

  PlacementPlan plan_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int computed = 0;
};

// By sequence: the tokens drawn, the logits they were drawn from, and the hidden states of these.
struct Answer {
  std::vector<TokenId> tokens[2];
  std::vector<std::vector<float>> logits[2], hidden[2];
};

// Two sequences: the first decodes while the second is still prefilled, four tokens a step.
Answer Generate(Cluster& cluster, int block_size) {
  Sequence sequences[2];
  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < kPositions / block_size; ++i) {
      sequences[s].blocks.push_back(BlockId(2 * i + 1 - s));
    }
  }
  sequences[0].tokens = {3, 1, 4, 1, 5};
  sequences[1].tokens = {9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2, 6, 4, 3, 3, 8};
  Answer answer;
  for (int step = 0; step < 20; ++step) {
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions, sampled;
    std::vector<BatchTensors::Sequence> rows;
    std::vector<int> drawing;
    for (int s = 0; s < 2; ++s) {
      Sequence& sequence = sequences[s];
      const int known = static_cast<int>(sequence.tokens.size());
      const int count = std::min(4, known - sequence.computed);
      rows.push_back({static_cast<int>(tokens.size()), count, sequence.computed,
                      absl::MakeConstSpan(sequence.blocks)
                          .first((sequence.computed + count + block_size - 1) / block_size)});
      for (int i = 0; i < count; ++i) {
        tokens.push_back(sequence.tokens[sequence.computed]);
        positions.push_back(sequence.computed++);
      }
      if (sequence.computed == known) {
        sampled.push_back(static_cast<int>(tokens.size()) - 1);
        drawing.push_back(s);
      }
    }
    BatchTensors batch{
        .tokens = tokens, .positions = positions, .sequences = rows, .sampled_rows = sampled};
    Status status = cluster.Run(batch);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) return answer;
    for (size_t r = 0; r < drawing.size(); ++r) {
      std::vector<float> row = cluster.Logits(static_cast<int>(r));
      const int s = drawing[r];
      const TokenId best =
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
      sequences[s].tokens.push_back(best);
      answer.tokens[s].push_back(best);
      answer.logits[s].push_back(std::move(row));
      answer.hidden[s].push_back(cluster.Hidden(sampled[r]));
    }
  }
  return answer;
}

double MaxDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double max = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    max = std::max<double>(max, std::abs(a[i] - b[i]));
  return max;
}

void ExpectSameTokens(const FakeModel& model, const Setup& setup) {
  Result<std::unique_ptr<Cluster>> whole = Cluster::Create(model, setup, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Answer expected = Generate(**whole, setup.block_size);
  double worst = 0, worst_hidden = 0;
  int near_ties = 0;
  const Layout layouts[] = {
      {2, 1, {}}, {3, 1, {}},        {3, 1, {3, 1, 2}},    {4, 1, {}}, {5, 1, {}},
      {1, 2, {}}, {1, 3, {1, 5, 2}}, {2, 2, {1, 3, 1, 1}}, {3, 2, {}}, {1, 4, {}},
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(StrCat("tp ", layout.tp, " pp ", layout.pp));
    Result<std::unique_ptr<Cluster>> cluster = Cluster::Create(model, setup, layout);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const Answer answer = Generate(**cluster, setup.block_size);
    for (int s = 0; s < 2; ++s) {
      ASSERT_EQ(answer.tokens[s].size(), expected.tokens[s].size());
      for (size_t i = 0; i < answer.tokens[s].size(); ++i) {
        const std::vector<float>&got = answer.logits[s][i], &want = expected.logits[s][i];
        worst = std::max(worst, MaxDifference(got, want));
        worst_hidden =
            std::max(worst_hidden, MaxDifference(answer.hidden[s][i], expected.hidden[s][i]));
        const TokenId token = answer.tokens[s][i], wanted = expected.tokens[s][i];
        if (token == wanted) continue;
        ++near_ties;
        EXPECT_LE(want[wanted] - want[token], 2 * setup.bound) << "sequence " << s << " draw " << i;
        break;  // what follows has another prefix
      }
    }
  }
  std::cout << "largest difference of a logit: " << worst << ", of a hidden state: " << worst_hidden
            << ", near ties: " << near_ties << "\n";
  EXPECT_LT(worst, setup.bound);
  EXPECT_LT(worst_hidden, setup.bound);
}

TinyShape Shape(bool tied, int window) {
  TinyShape shape;
  shape.tied = tied;
  shape.window = window;
  return shape;
}

TEST(Ranks, LlamaTied) {
  ExpectSameTokens(*MakeTinyModel("llama", Shape(true, 0)), {*MakeRefBackend()});
}
TEST(Ranks, LlamaUntiedWithWindow) {
  ExpectSameTokens(*MakeTinyModel("llama", Shape(false, 6)), {*MakeRefBackend()});
}
TEST(Ranks, LlamaWithOutputBias) {
  auto model = MakeTinyModel("llama", Shape(true, 0));
  for (int layer = 0; layer < 4; ++layer) {
    model->AddTensor(StrCat("blk.", layer, ".attn_output.bias"), 1, 64, 1.0f);
  }
  ExpectSameTokens(*model, {*MakeRefBackend()});
}
TEST(Ranks, Qwen2) {
  ExpectSameTokens(*MakeTinyModel("qwen2", Shape(false, 0)), {*MakeRefBackend()});
}
TEST(Ranks, Gemma3) {
  auto model = MakeTinyModel("gemma3", Shape(false, 6));
  model->keys["gemma3.attention.sliding_window_pattern"] = int64_t{2};
  ExpectSameTokens(*model, {*MakeRefBackend()});
}

// What embeddings are made of is what the vocabulary's projection reads.
TEST(Ranks, LogitsAreTheProjectionOfHiddenStates) {
  const TinyShape shape = Shape(false, 0);
  auto model = MakeTinyModel("llama", shape);
  const auto backend = MakeRefBackend();
  Result<std::unique_ptr<Cluster>> cluster = Cluster::Create(*model, {*backend}, {2, 2, {}});
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  const Answer answer = Generate(**cluster, 4);
  const auto* weights = reinterpret_cast<const float*>(model->Find("output.weight")->bytes.data());
  ASSERT_FALSE(answer.hidden[0].empty());
  for (int s = 0; s < 2; ++s) {
    for (size_t i = 0; i < answer.hidden[s].size(); ++i) {
      const std::vector<float>& hidden = answer.hidden[s][i];
      ASSERT_EQ(hidden.size(), static_cast<size_t>(shape.hidden));
      for (int t = 0; t < shape.vocab; ++t) {
        const float logit =
            std::inner_product(hidden.begin(), hidden.end(), weights + t * shape.hidden, 0.0f);
        EXPECT_NEAR(answer.logits[s][i][t], logit, 1e-3);
      }
    }
  }
}

// Ranges of quantised weights, and the CPU backend in its default mode: activations in 15 bits and
// attention in bf16 turn differences of the last bit into larger ones.
TEST(Ranks, QuantisedWeights) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    TinyShape shape = Shape(false, 6);
    shape.head_dim = 32;  // a block of 32 is not cut
    auto model = MakeTinyModel(architecture, shape);
    model->QuantiseMatrices();
    ExpectSameTokens(*model, {*MakeRefBackend()});
    Result<std::unique_ptr<Backend>> cpu = MakeCpuBackend({.threads = 1});
    ASSERT_TRUE(cpu.ok()) << cpu.status();
    ExpectSameTokens(*model, {**cpu, 16, 0.1});
  }
}

TEST(Ranks, PlainWeightsOnTheCpuBackend) {
  Result<std::unique_ptr<Backend>> cpu = MakeCpuBackend({.threads = 1});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ExpectSameTokens(*MakeTinyModel("llama", Shape(false, 0)), {**cpu, 16, 0.1});
}

}  // namespace
}  // namespace staffel
