// Lowering of programs: what is fused, what is converted, and that no two live buffers overlap.
#include "device/cpu/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "device/cpu/memory.h"
#include "device/cpu/step_rows.h"
#include "tests/support/seed.h"
#include "tests/unit/device/random_model.h"

namespace staffel::cpu {
namespace {

using ::testing::HasSubstr;
using testing::ModelShapeSpec;
using testing::TinyModel;

Plan PlanOf(const TinyModel& model, BackendOptions options = {}, int group_size = 1) {
  auto slices = FindWeights(model.program, model.weights);
  EXPECT_TRUE(slices.ok()) << slices.status();
  auto plan = MakePlan(model.program, *slices, group_size, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// "Embed Prepare Matmul ...": the launches by kind.
std::string Kinds(const Plan& plan) {
  constexpr const char* kNames[] = {"Embed",     "Prepare", "Matmul",  "Gated",
                                    "Attention", "Comm",    "TakeRows"};
  std::string text;
  for (const Launch& launch : plan.launches) {
    if (!text.empty()) text += ' ';
    text += kNames[launch.kind.index()];
  }
  return text;
}

TEST(CpuPlan, AQuantisedLayerHasOneConversion) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  shape.layers = 1;
  shape.types.assign(8, DType::kQ8_0);
  // Norm, qkv, rope + attention, conversion, o, norm, gate + up, down; no AllReduce when alone.
  const TinyModel model = testing::MakeTinyModel(rng, shape);
  EXPECT_EQ(Kinds(PlanOf(model)),
            "Embed Prepare Matmul Attention Prepare Matmul Prepare Gated Matmul "
            "TakeRows TakeRows Prepare Matmul");
  EXPECT_EQ(Kinds(PlanOf(model, {}, 2)),
            "Embed Prepare Matmul Attention Prepare Matmul Comm Prepare Gated Matmul Comm "
            "TakeRows TakeRows Prepare Matmul");
}

TEST(CpuPlan, PartsOfOneTypeAreOneMatrix) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  shape.layers = 1;
  shape.types.assign(8, DType::kQ8_0);
  const auto segments = [&] {
    const Plan plan = PlanOf(testing::MakeTinyModel(rng, shape));
    for (const Launch& launch : plan.launches) {  // the first product is q, k and v
      if (const auto* matmul = std::get_if<MatmulLaunch>(&launch.kind)) {
        return matmul->segments.size();
      }
    }
    return size_t{0};
  };
  EXPECT_EQ(segments(), 1u);
  shape.types[2] = DType::kQ4_1;
  EXPECT_EQ(segments(), 2u);
  shape.types[1] = DType::kF32;  // reads another form
  EXPECT_EQ(segments(), 3u);
}

TEST(CpuPlan, TiedEmbeddingsAreReadFromThePackedMatrix) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  for (bool tied : {false, true}) {
    shape.tied = tied;
    const Plan plan = PlanOf(testing::MakeTinyModel(rng, shape));
    const auto& embed = std::get<EmbedLaunch>(plan.launches[0].kind);
    EXPECT_EQ(embed.matrix != MatrixId::kNone, tied);
  }
}

TEST(CpuPlan, LiveBuffersNeverOverlap) {
  testing::Rng rng(TestSeed());
  for (int round = 0; round < 30; ++round) {
    const ModelShapeSpec shape =
        testing::RandomShape(rng, {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ5_1});
    SCOPED_TRACE(shape.Describe());
    BackendOptions options;
    if (round % 3 == 0) options.trace = [](const TraceRecord&) {};
    const Plan plan = PlanOf(testing::MakeTinyModel(rng, shape), options, 1 + round % 2);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer& a = plan.buffers[i];
      EXPECT_GE(a.offset, 0);
      EXPECT_LE(a.offset + a.bytes, plan.step_bytes);
      EXPECT_EQ(a.offset % 64, 0);
      for (size_t j = 0; j < i; ++j) {
        const Buffer& b = plan.buffers[j];
        const bool both_live = a.first <= b.last && b.first <= a.last;
        const bool overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
        EXPECT_FALSE(both_live && overlap) << "buffers " << i << " and " << j;
      }
    }
  }
}

TEST(CpuPlan, ReusesMemoryOfDeadValues) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  shape.layers = 2;
  const int64_t two = PlanOf(testing::MakeTinyModel(rng, shape)).step_bytes;
  shape.layers = 12;
  EXPECT_EQ(PlanOf(testing::MakeTinyModel(rng, shape)).step_bytes, two);
}

TEST(CpuPlan, RefusesLayersWithDifferentHeads) {
  testing::Rng rng(1);
  ModelShapeSpec shape;
  TinyModel model = testing::MakeTinyModel(rng, shape);
  for (Op& op : model.program.ops) {
    if (auto* attend = std::get_if<PagedAttentionOp>(&op)) {
      attend->heads = WholeHeads(2 + 2 * attend->layer, 2);
    }
  }
  auto slices = FindWeights(model.program, model.weights);
  ASSERT_TRUE(slices.ok());
  const Status status = MakePlan(model.program, *slices, 1, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not 2 and 4"));
}

TEST(CpuMemory, RefusesWithNumbers) {
  const MemoryNeeds needs{.weights = int64_t{3} << 30,
                          .kv = int64_t{1} << 30,
                          .activations = int64_t{1} << 29,
                          .kv_blocks = 100,
                          .block_size = 16};
  EXPECT_TRUE(CheckMemory(needs, needs.total()).ok());
  const Status status = CheckMemory(needs, int64_t{4} << 30);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("4.50 GiB"), HasSubstr("weights 3.00 GiB"),
                               HasSubstr("KV 1.00 GiB for 100 blocks of 16 tokens"),
                               HasSubstr("activations 0.50 GiB"), HasSubstr("4.00 GiB are"),
                               HasSubstr("0.50 GiB are missing")));
}

TEST(CpuMemory, MapsZeroesAtHugePageBoundaries) {
  auto memory = HugeMemory::Map(5 << 20, "a test");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<intptr_t>(memory->data()) % (2 << 20), 0);
  for (int i = 0; i < 5 << 20; i += 4096) ASSERT_EQ(memory->data()[i], 0);
  EXPECT_EQ(HugeMemory::Map(int64_t{1} << 60, "a test").status().code(),
            absl::StatusCode::kResourceExhausted);
}

// A KV head that only one of its group's query heads reads has pieces of its own.
TEST(CpuStepRows, CutGroupsHaveFewerPairs) {
  StepRows rows(100, /*block_size=*/16, HeadGroups{5, 3, 3, 2});  // heads 2 | 3 4 5 | 6
  std::vector<TokenId> tokens(9);
  const std::vector<BlockId> blocks = {BlockId(0)};
  const std::vector<BatchTensors::Sequence> sequences = {
      {.row_begin = 0, .row_count = 9, .start = 0, .blocks = blocks}};
  BatchTensors batch;
  batch.tokens = tokens;
  batch.sequences = sequences;
  rows.Set(batch);
  std::vector<int> pairs(3);
  for (const StepRows::AttendPiece& piece : rows.attend_pieces()) {
    pairs[piece.kv_head] += piece.end - piece.begin;
  }
  EXPECT_EQ(pairs, (std::vector<int>{9, 27, 9}));
  EXPECT_EQ(rows.attend_pieces().size(), 2u + 4u + 2u);
}

TEST(CpuStepRows, CutsRowsAtSubBlocksAndPairsByEight) {
  StepRows rows(100, /*block_size=*/32, WholeHeads(3, 1));
  std::vector<TokenId> tokens(31);
  const std::vector<BlockId> a = {BlockId(7), BlockId(2)}, b = {BlockId(1)};
  // 30 rows at positions 10 to 39 of one sequence, one row at position 5 of another.
  const std::vector<BatchTensors::Sequence> sequences = {
      {.row_begin = 0, .row_count = 30, .start = 10, .blocks = a},
      {.row_begin = 30, .row_count = 1, .start = 5, .blocks = b}};
  BatchTensors batch;
  batch.tokens = tokens;
  batch.sequences = sequences;
  rows.Set(batch);
  EXPECT_FALSE(rows.one_row_each());
  EXPECT_EQ(rows.position_end(), 40);
  EXPECT_EQ(rows.sub_blocks()[0], 14);  // block 7, first half
  EXPECT_EQ(rows.sub_blocks()[6], 15);  // position 16
  EXPECT_EQ(rows.sub_blocks()[29], 4);  // position 39: block 2, first half
  EXPECT_EQ(rows.sub_blocks()[30], 2);
  // Positions 10 to 31 (22 rows), then the rest with the other sequence's row.
  ASSERT_EQ(rows.store_pieces().size(), 2u);
  EXPECT_EQ(rows.store_pieces()[0].row_end, 22);
  EXPECT_EQ(rows.store_pieces()[1].row_end, 31);
  // 90 pairs and 3 pairs, the last first.
  ASSERT_EQ(rows.attend_pieces().size(), 13u);
  EXPECT_EQ(rows.attend_pieces()[0].sequence, 1);
  EXPECT_EQ(rows.attend_pieces()[0].end, 3);
  EXPECT_EQ(rows.attend_pieces()[1].begin, 88);
  EXPECT_EQ(rows.attend_pieces()[1].end, 90);
  EXPECT_EQ(rows.attend_pieces()[12].begin, 0);
}

// SmolLM2 with 2048 blocks: a layer's 24 MiB are whole huge pages, yet no block begins one in all
// layers at once.
TEST(CpuPlan, LayersBeginTheirPagesAtDifferentBlocks) {
  const KvShape kv{.layers = 30, .kv_heads = 3, .head_dim = 64};
  const int64_t stride = KvLayerStride(kv, 16, 2048);
  EXPECT_GE(stride, KvBlockBytes(kv, 16) / 30 * 2048);
  std::vector<int64_t> places;
  for (int layer = 0; layer < 30; ++layer) places.push_back(layer * stride % kHugePage);
  std::sort(places.begin(), places.end());
  for (int i = 1; i < 30; ++i) EXPECT_GE(places[i] - places[i - 1], kHugePage / 32);
  EXPECT_EQ(stride % 64, 0) << "rows are aligned to cache lines";
}

}  // namespace
}  // namespace staffel::cpu
