// The same tiny model cut in every way gives the same tokens: ranks are threads, their collectives
// comm/local, the sequences prefilled in chunks beside each other's decodes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <thread>
#include <vector>

#include "base/strings.h"
#include "comm/local/local_communicator.h"
#include "device/ref/ref_backend.h"
#include "model/model.h"
#include "plan/placement.h"
#include "tests/support/fake_model.h"

namespace staffel {
namespace {

constexpr int kBlockSize = 4;
constexpr int kPositions = 64;

struct Layout {
  int tp = 1, pp = 1;
  std::vector<double> speeds;  // of the ranks; empty: alike
};

// All ranks of one replica, stepped together.
class Cluster {
 public:
  static Result<std::unique_ptr<Cluster>> Create(const FakeModel& model, Backend& backend,
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
      options.block_size = kBlockSize;
      options.block_count = 2 * kPositions / kBlockSize;
      options.max_rows = 32;
      options.max_sampled_rows = 32;
      options.max_positions = kPositions;
      options.exact = true;
      STAFFEL_ASSIGN_OR_RETURN(
          std::unique_ptr<Executable> executable,
          backend.Prepare(program, model, cluster->communicators_[shard.rank].get(), options));
      cluster->executables_.push_back(std::move(executable));
    }
    return cluster;
  }

  // Runs the batch on all ranks; row r of the logits is then on every rank of the last stage.
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

  // The same bits on all members of the last stage, which is checked.
  std::vector<float> Logits(int row) {
    const std::vector<int>& last = plan_.tensor_groups.back();
    absl::Span<float> first = executables_[last[0]]->logits(row);
    for (int rank : last) {
      absl::Span<float> logits = executables_[rank]->logits(row);
      EXPECT_TRUE(std::equal(first.begin(), first.end(), logits.begin(), logits.end()))
          << "rank " << rank << " differs from rank " << last[0];
    }
    return {first.begin(), first.end()};
  }

 private:
  PlacementPlan plan_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<Executable>> executables_;
};

struct Sequence {
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;
  int computed = 0;
};

struct Answer {
  std::vector<TokenId> tokens[2];
  std::vector<std::vector<float>> logits;  // of every draw, in order
};

// Two sequences: the first decodes while the second is still prefilled, four tokens a step.
Answer Generate(Cluster& cluster) {
  Sequence sequences[2];
  for (int s = 0; s < 2; ++s) {
    for (int i = 0; i < kPositions / kBlockSize; ++i) {
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
                          .first((sequence.computed + count + kBlockSize - 1) / kBlockSize)});
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
      sequences[drawing[r]].tokens.push_back(
          static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
      answer.logits.push_back(std::move(row));
    }
  }
  for (int s = 0; s < 2; ++s) answer.tokens[s] = sequences[s].tokens;
  return answer;
}

void ExpectSameTokens(const FakeModel& model, Backend& backend) {
  Result<std::unique_ptr<Cluster>> whole = Cluster::Create(model, backend, {});
  ASSERT_TRUE(whole.ok()) << whole.status();
  const Answer expected = Generate(**whole);
  double worst = 0;
  const Layout layouts[] = {
      {2, 1, {}}, {3, 1, {}},        {3, 1, {3, 1, 2}},    {4, 1, {}}, {5, 1, {}},
      {1, 2, {}}, {1, 3, {1, 5, 2}}, {2, 2, {1, 3, 1, 1}}, {3, 2, {}}, {1, 4, {}},
  };
  for (const Layout& layout : layouts) {
    SCOPED_TRACE(StrCat("tp ", layout.tp, " pp ", layout.pp));
    Result<std::unique_ptr<Cluster>> cluster = Cluster::Create(model, backend, layout);
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    const Answer answer = Generate(**cluster);
    for (int s = 0; s < 2; ++s) EXPECT_EQ(answer.tokens[s], expected.tokens[s]);
    ASSERT_EQ(answer.logits.size(), expected.logits.size());
    for (size_t i = 0; i < answer.logits.size(); ++i) {
      for (size_t t = 0; t < answer.logits[i].size(); ++t) {
        worst = std::max<double>(worst, std::abs(answer.logits[i][t] - expected.logits[i][t]));
      }
    }
  }
  std::cout << "largest difference of a logit: " << worst << "\n";
  EXPECT_LT(worst, 1e-3);
}

TinyShape Shape(bool tied, int window) {
  TinyShape shape;
  shape.tied = tied;
  shape.window = window;
  return shape;
}

TEST(Ranks, LlamaTied) {
  ExpectSameTokens(*MakeTinyModel("llama", Shape(true, 0)), *MakeRefBackend());
}
TEST(Ranks, LlamaUntiedWithWindow) {
  ExpectSameTokens(*MakeTinyModel("llama", Shape(false, 6)), *MakeRefBackend());
}
TEST(Ranks, LlamaWithOutputBias) {
  auto model = MakeTinyModel("llama", Shape(true, 0));
  for (int layer = 0; layer < 4; ++layer) {
    model->AddTensor(StrCat("blk.", layer, ".attn_output.bias"), 1, 64, 1.0f);
  }
  ExpectSameTokens(*model, *MakeRefBackend());
}
TEST(Ranks, Qwen2) {
  ExpectSameTokens(*MakeTinyModel("qwen2", Shape(false, 0)), *MakeRefBackend());
}
TEST(Ranks, Gemma3) {
  auto model = MakeTinyModel("gemma3", Shape(false, 6));
  model->keys["gemma3.attention.sliding_window_pattern"] = int64_t{2};
  ExpectSameTokens(*model, *MakeRefBackend());
}

}  // namespace
}  // namespace staffel
