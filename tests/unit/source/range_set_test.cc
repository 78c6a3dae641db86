#include "source/range_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/support/seed.h"

namespace staffel {

bool operator==(const ModelRange& a, const ModelRange& b) {
  return a.offset == b.offset && a.size == b.size;
}

namespace {

TEST(RangeSet, JoinsWhatTouchesAndDropsWhatIsEmpty) {
  std::vector<ModelRange> ranges = {{10, 5}, {0, 0}, {15, 5}, {30, 1}, {12, 20}, {40, 0}};
  Normalise(&ranges);
  EXPECT_EQ(ranges, (std::vector<ModelRange>{{10, 22}}));
}

TEST(RangeSet, SubtractLeavesTheGaps) {
  const std::vector<ModelRange> from = {{0, 10}, {20, 10}, {40, 10}};
  EXPECT_EQ(Subtract(from, {}), from);
  EXPECT_EQ(Subtract(from, from), std::vector<ModelRange>());
  EXPECT_EQ(Subtract(from, std::vector<ModelRange>{{3, 2}, {8, 14}, {29, 12}}),
            (std::vector<ModelRange>{{0, 3}, {5, 3}, {22, 7}, {41, 9}}));
}

TEST(RangeSet, ColumnsOfAMatrixArePiecesOfRuns) {
  std::vector<ModelRange> columns;
  for (int row = 0; row < 100; ++row) columns.push_back({1000 + 360 * row, 180});
  columns.push_back({900000, 7});
  EXPECT_EQ(CutIntoPieces(columns), (std::vector<Piece>{{1000, 180, 360, 100}, {900000, 7, 0, 1}}));
}

TEST(RangeSet, LargeRangesAreCutToSize) {
  const std::vector<Piece> pieces =
      CutIntoPieces(std::vector<ModelRange>{{5, 3 * kPieceBytesMax + 1}});
  ASSERT_EQ(pieces.size(), 4u);
  EXPECT_EQ(pieces[3], (Piece{5 + 3 * kPieceBytesMax, 1, 0, 1}));
}

// Against sets of single bytes.
TEST(RangeSet, AgreesWithSetsOfBytes) {
  std::mt19937_64 random(TestSeed());
  constexpr int kBytes = 300;
  const auto any = [&] {
    std::vector<ModelRange> ranges(random() % 12);
    for (ModelRange& range : ranges) {
      range = {static_cast<int64_t>(random() % 280), static_cast<int64_t>(random() % 20)};
    }
    return ranges;
  };
  const auto bytes = [](const std::vector<ModelRange>& ranges) {
    std::vector<bool> set(kBytes);
    for (const ModelRange& range : ranges) {
      std::fill_n(set.begin() + range.offset, range.size, true);
    }
    return set;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<ModelRange> a = any(), b = any();
    const std::vector<bool> a_bytes = bytes(a), b_bytes = bytes(b);
    Normalise(&a);
    Normalise(&b);
    ASSERT_EQ(bytes(a), a_bytes);
    std::vector<bool> want(kBytes);
    for (int i = 0; i < kBytes; ++i) want[i] = a_bytes[i] && !b_bytes[i];
    const std::vector<ModelRange> left = Subtract(a, b);
    ASSERT_EQ(bytes(left), want);
    ASSERT_EQ(TotalBytes(left), std::count(want.begin(), want.end(), true));
    const ModelRange probe{static_cast<int64_t>(random() % 280),
                           1 + static_cast<int64_t>(random() % 19)};
    const bool overlaps =
        std::any_of(a_bytes.begin() + probe.offset, a_bytes.begin() + probe.offset + probe.size,
                    [](bool is_in) { return is_in; });
    ASSERT_EQ(Overlaps(a, probe), overlaps);
    std::vector<ModelRange> runs;
    for (const Piece& piece : CutIntoPieces(a)) {
      ASSERT_LE(piece.bytes(), kPieceBytesMax);
      for (int64_t i = 0; i < piece.runs; ++i) runs.push_back(piece.run(i));
    }
    ASSERT_EQ(runs, a);
  }
}

}  // namespace
}  // namespace staffel
