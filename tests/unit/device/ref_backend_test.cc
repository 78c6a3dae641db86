// The reference backend judged by itself and by a model small enough to compute by hand.
#include "device/ref/ref_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/seed.h"
#include "tests/unit/device/random_model.h"

namespace staffel {
namespace {

using ::testing::HasSubstr;
using testing::Logits;

constexpr DType kAllTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ4_0,
                               DType::kQ4_1, DType::kQ5_0, DType::kQ5_1, DType::kQ8_0,
                               DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};

BackendOptions Options() {
  BackendOptions options;
  options.block_count = 64;
  options.max_rows = 128;
  options.max_sampled_rows = 128;
  options.max_positions = 256;
  return options;
}

// One token, one layer without attention: logits = head . rmsnorm(embedding).
TEST(RefBackend, ComputesATinyModelByHand) {
  testing::MemoryWeights weights;
  weights.AddFloats("embd", 2, 2, {3, 4, 1, -1});
  weights.AddFloats("norm", 1, 2, {1, 2});
  weights.AddFloats("head", 3, 2, {1, 0, 0, 1, 1, 1});
  Program program;
  program.values = {{"x", RowDim::kTokens, 2},
                    {"s", RowDim::kSampled, 2},
                    {"n", RowDim::kSampled, 2},
                    {"logits", RowDim::kSampled, 3}};
  program.weights = {
      {"embd", {0, 2}, {0, 2}}, {"norm", {0, 2}, {0, 1}, true}, {"head", {0, 3}, {0, 2}}};
  program.ops = {
      EmbedOp{WeightId(0), ValueId(0), 2.0f}, TakeRowsOp{ValueId(0), ValueId(1)},
      AddRmsNormOp{.residual = ValueId(1), .weight = WeightId(1), .out = ValueId(2), .eps = 0.0f},
      LinearOp{ValueId(2), {WeightId(2)}, {}, ValueId(3)}};
  program.logits = ValueId(3);
  auto executable = MakeRefBackend()->Prepare(program, weights, nullptr, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  testing::Sequences sequences{{{0}}, {{BlockId(5)}}};
  auto logits = RunSchedule(**executable, program, sequences, testing::WholePrompts(sequences));
  ASSERT_TRUE(logits.ok()) << logits.status();
  // x = (6, 8), rms = sqrt(50); normed = (6, 16) / sqrt(50).
  const float r = std::sqrt(50.0f);
  const std::vector<float> want = {6 / r, 16 / r, 22 / r};
  EXPECT_THAT((*logits)[std::pair(0, 0)], ::testing::Pointwise(::testing::FloatNear(1e-6f), want));
}

TEST(RefBackend, ChunkingChangesNothing) {
  testing::Rng rng(TestSeed() + 11);
  for (DType type : kAllTypes) {
    const auto shape = testing::RandomShape(rng, {type});
    SCOPED_TRACE(shape.Describe());
    testing::TinyModel model = testing::MakeTinyModel(rng, shape);
    const auto sequences = testing::RandomSequences(rng, shape.vocab, {37, 1, 20}, 16, 64);
    Logits want;
    for (int variant = 0; variant < 3; ++variant) {
      auto executable = MakeRefBackend(1 + variant % 2)
                            ->Prepare(model.program, model.weights, nullptr, Options());
      ASSERT_TRUE(executable.ok()) << executable.status();
      auto got = RunSchedule(**executable, model.program, sequences,
                             variant == 0   ? testing::TokenByToken(sequences)
                             : variant == 1 ? testing::WholePrompts(sequences)
                                            : testing::RandomSchedule(rng, sequences, 128));
      ASSERT_TRUE(got.ok()) << got.status();
      if (variant == 0) want = *got;
      EXPECT_EQ(*got, want);
    }
    EXPECT_TRUE(std::isfinite(want.begin()->second[0]));
  }
}

// Two ways to hold the same prefix: one's own blocks, or copies of another sequence's.
TEST(RefBackend, BlockCopiesCarryKeysAndValues) {
  testing::Rng rng(TestSeed() + 12);
  testing::ModelShapeSpec shape;
  testing::TinyModel model = testing::MakeTinyModel(rng, shape);
  auto executable = MakeRefBackend()->Prepare(model.program, model.weights, nullptr, Options());
  ASSERT_TRUE(executable.ok()) << executable.status();
  auto sequences = testing::RandomSequences(rng, shape.vocab, {20}, 16, 8);
  auto want = RunSchedule(**executable, model.program, sequences, testing::TokenByToken(sequences));
  ASSERT_TRUE(want.ok()) << want.status();
  // The last token again, on copies of both blocks.
  const std::vector<BlockId> copies = {BlockId(40), BlockId(41)};
  const std::vector<BlockCopy> block_copies = {{sequences.blocks[0][0], copies[0]},
                                               {sequences.blocks[0][1], copies[1]}};
  const TokenId token = sequences.tokens[0][19];
  const int32_t position = 19, sampled = 0;
  const BatchTensors::Sequence row{.row_begin = 0, .row_count = 1, .start = 19, .blocks = copies};
  BatchTensors batch;
  batch.tokens = absl::MakeConstSpan(&token, 1);
  batch.positions = absl::MakeConstSpan(&position, 1);
  batch.sampled_rows = absl::MakeConstSpan(&sampled, 1);
  batch.sequences = absl::MakeConstSpan(&row, 1);
  batch.block_copies = block_copies;
  ASSERT_TRUE((*executable)->Run(batch).ok());
  const absl::Span<float> got = (*executable)->logits(0);
  EXPECT_EQ(std::vector<float>(got.begin(), got.end()), ((*want)[{0, 19}]));
}

TEST(RefBackend, TraceTellsEveryWrittenValueInOrder) {
  testing::Rng rng(TestSeed() + 13);
  testing::ModelShapeSpec shape;
  shape.layers = 1;
  testing::TinyModel model = testing::MakeTinyModel(rng, shape);
  BackendOptions options = Options();
  std::vector<int> ops;
  options.trace = [&](const TraceRecord& record) {
    ops.push_back(record.op);
    EXPECT_EQ(static_cast<int>(record.data.size()), record.rows * record.cols);
    EXPECT_EQ(record.cols, model.program.value(record.value).cols);
  };
  auto executable = MakeRefBackend()->Prepare(model.program, model.weights, nullptr, options);
  ASSERT_TRUE(executable.ok()) << executable.status();
  const auto sequences = testing::RandomSequences(rng, shape.vocab, {3}, 16, 8);
  ASSERT_TRUE(
      RunSchedule(**executable, model.program, sequences, testing::WholePrompts(sequences)).ok());
  // Embed, norm, qkv, rope, attention, o, reduce, add+norm (two values), ffn, down, reduce, take
  // twice, add+norm (two), head.
  EXPECT_THAT(ops, ::testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13, 13, 14));
}

}  // namespace
}  // namespace staffel
