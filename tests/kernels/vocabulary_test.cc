// add, softmax statistics, argmax and top-k over long rows.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class VocabularyTest : public CpuKernelTest {};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
const int kCounts[] = {1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 1000, 49152, 50001};

TEST_P(VocabularyTest, Adds) {
  Rng rng(TestSeed());
  for (int n : kCounts) {
    const auto x = RandomRows(n, rng), y0 = RandomRows(n, rng);
    auto y = y0;
    k().add(y.data(), x.data(), n);
    for (int i = 0; i < n; i++) ASSERT_EQ(y[i], y0[i] + x[i]) << i;
  }
}

TEST_P(VocabularyTest, SoftmaxStatsEqualAnF64Loop) {
  Rng rng(TestSeed());
  for (int n : kCounts) {
    auto x = RandomRows(n, rng, 5);
    if (n > 5) x[n / 3] = -kInf, x[n / 2] = -1e30f;
    const SoftmaxStats got = k().softmax_stats(x.data(), n);
    const float max = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (float v : x) sum += std::exp(double{v} - max);
    EXPECT_EQ(got.max, max);
    // e^x to a few epsilon plus its argument's rounding (|x| up to 50), 64 f32 additions a lane.
    EXPECT_NEAR(got.sum, sum, sum * (64 + 60) * kEpsilon) << n;
  }
}

TEST_P(VocabularyTest, SoftmaxStatsOfRowsWithoutNumbers) {
  std::vector<float> x(37, -kInf);
  EXPECT_EQ(k().softmax_stats(x.data(), 37).max, -kInf);
  EXPECT_EQ(k().softmax_stats(x.data(), 37).sum, 37);
  x[20] = 3;
  x[21] = kNan;
  const SoftmaxStats s = k().softmax_stats(x.data(), 37);
  EXPECT_EQ(s.max, 3);
  EXPECT_NEAR(s.sum, 1, 1e-6);
}

TEST_P(VocabularyTest, ArgMaxIsTheFirstLargest) {
  Rng rng(TestSeed());
  for (int n : kCounts) {
    auto x = RandomRows(n, rng);
    for (int repeat = 0; repeat < 20; repeat++) {
      const int a = static_cast<int>(rng() % n), b = static_cast<int>(rng() % n);
      auto y = x;
      y[a] = y[b] = 100;
      y[n - 1] = y[n - 1] == 100 ? 100 : kNan;
      ASSERT_EQ(k().argmax(y.data(), n), std::min(a, b)) << n;
    }
  }
  const std::vector<float> lowest(19, -kInf), nothing(19, kNan);
  EXPECT_EQ(k().argmax(lowest.data(), 19), 0);
  EXPECT_EQ(k().argmax(nothing.data(), 19), 0);
}

std::vector<int32_t> SortedIds(const std::vector<float>& x) {
  std::vector<int32_t> ids(x.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto value = [&](int32_t i) { return std::isnan(x[i]) ? -kInf : x[i]; };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return value(a) > value(b); });
  return ids;
}

TEST_P(VocabularyTest, TopKIsTheHeadOfAStableSort) {
  Rng rng(TestSeed());
  for (int n : kCounts) {
    for (int kind = 0; kind < 4; kind++) {
      std::vector<float> x = RandomRows(n, rng);
      if (kind == 1) {
        for (auto& v : x) v = std::round(2 * v);  // many ties
      } else if (kind == 2) {
        std::sort(x.begin(), x.end());  // every value enters
      } else if (kind == 3) {
        for (auto& v : x) v = rng() % 3 == 0 ? kNan : rng() % 3 == 0 ? -kInf : v;
      }
      const auto want = SortedIds(x);
      for (int top : {1, 2, 20, 64, 1000, n, n + 5}) {
        std::vector<ScoredId> got(top);
        const int count = k().top_k(x.data(), n, top, got.data());
        ASSERT_EQ(count, std::min(top, n));
        for (int i = 0; i < count; i++) {
          ASSERT_EQ(got[i].id, want[i]) << "n " << n << " kind " << kind << " place " << i;
        }
      }
    }
  }
  EXPECT_EQ(k().top_k(nullptr, 0, 5, nullptr), 0);
}

STAFFEL_ALL_LEVELS(VocabularyTest);

}  // namespace
}  // namespace staffel::kernels
