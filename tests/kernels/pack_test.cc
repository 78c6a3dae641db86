// Packing against the plain dequantisation.
#include <cstring>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class PackTest : public CpuKernelTest {};

// Equal values; the sign of a zero may differ (scale * code + min against scale * (code - zero)).
::testing::AssertionResult SameValues(const float* got, const float* want, int cols, int row,
                                      const std::string& what) {
  for (int c = 0; c < cols; c++) {
    if (got[c] != want[c]) return Near(got[c], want[c], 0, row, c, what);
  }
  return ::testing::AssertionSuccess();
}

struct Shape {
  int rows, cols;
};

std::vector<Shape> ShapesOf(DType type) {
  const int block = InfoOf(type).block_elements;
  if (block == 256) return {{1, 256}, {16, 512}, {37, 768}};
  if (block == 32) return {{1, 32}, {16, 64}, {17, 96}, {48, 576}, {5, 672}};
  return {{1, 1}, {16, 64}, {19, 37}, {33, 130}};
}

TEST_P(PackTest, UnpackedAndDecodedRowsAreTheStoredValues) {
  Rng rng(TestSeed());
  for (DType type : AllTypes()) {
    for (const Shape s : ShapesOf(type)) {
      const StoredMatrix m(type, s.rows, s.cols, rng);
      const Packed packed(k(), m.Part());
      Aligned<float> row(s.cols);
      for (int r = 0; r < s.rows; r++) {
        const std::string what = InfoOf(type).name;
        k().unpack_row(packed.matrix, r, 1.0f, row.data());
        ASSERT_TRUE(SameValues(row.data(), &m.values[int64_t{r} * s.cols], s.cols, r, what));
        k().decode_row(m.Part(), r, 1.0f, row.data());
        ASSERT_TRUE(SameValues(row.data(), &m.values[int64_t{r} * s.cols], s.cols, r, what));
      }
    }
  }
}

TEST_P(PackTest, ScaleMultipliesTheValue) {
  Rng rng(TestSeed());
  for (DType type : AllTypes()) {
    const StoredMatrix m(type, 18, 256, rng);
    const Packed packed(k(), m.Part());
    Aligned<float> row(256);
    std::vector<float> want(256);
    for (int c = 0; c < 256; c++) want[c] = m.at(17, c) * 25.3f;
    k().unpack_row(packed.matrix, 17, 25.3f, row.data());
    ASSERT_TRUE(SameValues(row.data(), want.data(), 256, 17, InfoOf(type).name));
    k().decode_row(m.Part(), 17, 25.3f, row.data());
    ASSERT_TRUE(SameValues(row.data(), want.data(), 256, 17, InfoOf(type).name));
  }
}

TEST_P(PackTest, PartsAndPiecesGiveTheSameTiles) {
  Rng rng(TestSeed());
  for (DType type : AllTypes()) {
    const StoredMatrix m(type, 83, 1024, rng);
    // A shard: rows [13, 80), columns [256, 768).
    const WeightPart part = m.Part(13, 80, 256, 768);
    const Packed whole(k(), part);
    Packed pieces(k(), part);
    std::memset(pieces.memory.data(), 0x5A, pieces.memory.size());
    for (int g : {3, 0, 4, 1, 2}) k().pack(part, pieces.matrix, g, g + 1);
    EXPECT_EQ(std::memcmp(whole.memory.data(), pieces.memory.data(), whole.memory.size()), 0);
    Aligned<float> row(512);
    for (int r : {0, 15, 16, 66}) {
      k().unpack_row(whole.matrix, r, 1.0f, row.data());
      ASSERT_TRUE(SameValues(row.data(), &m.values[(13 + r) * 1024 + 256], 512, r, "shard"));
    }
  }
}

TEST_P(PackTest, GateAndUpOfDifferentTypesInterleave) {
  Rng rng(TestSeed());
  const StoredMatrix gate(DType::kQ4_K, 40, 512, rng), up(DType::kQ6_K, 40, 512, rng);
  const int64_t gate_bytes = GroupBytes(gate.type, 512), up_bytes = GroupBytes(up.type, 512);
  Aligned<uint8_t> memory(3 * (gate_bytes + up_bytes));
  const auto place = [&](const StoredMatrix& m, uint8_t* at) {
    PackedMatrix p;
    p.type = m.type;
    p.rows = m.rows;
    p.cols = m.cols;
    p.data = at;
    p.group_stride_bytes = gate_bytes + up_bytes;
    k().pack(m.Part(), p, 0, 3);
    return p;
  };
  const PackedMatrix g = place(gate, memory.data()), u = place(up, memory.data() + gate_bytes);
  Aligned<float> row(512);
  for (int r = 0; r < 40; r++) {
    k().unpack_row(g, r, 1.0f, row.data());
    ASSERT_TRUE(SameValues(row.data(), &gate.values[r * 512], 512, r, "gate"));
    k().unpack_row(u, r, 1.0f, row.data());
    ASSERT_TRUE(SameValues(row.data(), &up.values[r * 512], 512, r, "up"));
  }
}

STAFFEL_ALL_LEVELS(PackTest);

TEST(PackSizes, GroupsAreAlignedAndNoLargerThanTheFile) {
  for (DType type : AllTypes()) {
    const DTypeInfo& info = InfoOf(type);
    const int64_t bytes = GroupBytes(type, 4096);
    EXPECT_EQ(bytes % kAlignment, 0) << info.name;
    const int64_t stored = 16 * 4096 / info.block_elements * info.block_bytes;
    EXPECT_GE(bytes, stored) << info.name;
    EXPECT_LE(bytes, stored * 102 / 100) << info.name;
    EXPECT_EQ(PackedBytes(type, 33, 4096), 3 * bytes) << info.name;
  }
}

TEST(PackSizes, CutsInsideABlockAreRefused) {
  EXPECT_EQ(PackError(DType::kQ4_0, 576, 0, 576), nullptr);
  EXPECT_EQ(PackError(DType::kQ4_0, 1536, 672, 1536), nullptr);
  EXPECT_NE(PackError(DType::kQ4_0, 1536, 16, 1536), nullptr);
  EXPECT_NE(PackError(DType::kQ4_K, 1536, 0, 672), nullptr);
  EXPECT_EQ(PackError(DType::kQ4_K, 1536, 256, 1536), nullptr);
  EXPECT_EQ(PackError(DType::kF32, 37, 3, 11), nullptr);
}

TEST(SelectCpuKernels, NamesALevelOrSaysWhatThereIs) {
  const auto& all = AvailableCpuKernels();
  ASSERT_FALSE(all.empty());
  EXPECT_STREQ(all.back()->name, "scalar");
  EXPECT_EQ(*SelectCpuKernels(""), all.front());
  for (const CpuKernels* table : all) EXPECT_EQ(*SelectCpuKernels(table->name), table);
  const auto missing = SelectCpuKernels("sse9");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(missing.status().message()).find("scalar"), std::string::npos);
}

}  // namespace
}  // namespace staffel::kernels
