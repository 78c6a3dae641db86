#include "worker/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/support/seed.h"
#include "worker/row_kernels.h"

namespace staffel {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> RandomRow(std::mt19937_64& random, int size) {
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> row(size);
  for (float& x : row) x = normal(random);
  return row;
}

// Those that this machine can run; all must give the same bits.
std::vector<const RowKernels*> Kernels() {
  std::vector<const RowKernels*> kernels = {&kRowKernelsBaseline};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) kernels.push_back(&kRowKernelsAvx2);
  if (__builtin_cpu_supports("avx512f")) kernels.push_back(&kRowKernelsAvx512);
#endif
  return kernels;
}

const int kSizes[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 100, 1023, 1024, 1025, 5000};

TEST(RowKernels, AllInstructionSetsGiveTheSameBits) {
  std::mt19937_64 random(TestSeed());
  for (int size : kSizes) {
    const std::vector<float> row = RandomRow(random, size);
    const float max = *std::max_element(row.begin(), row.end());
    std::vector<float> expected(size), weights(size);
    const RowKernels& base = kRowKernelsBaseline;
    std::vector<double> expected_sums(size), sums(size);
    const double sum = base.sum_exp(row.data(), size, max, 0.7f, 0.01f, expected_sums.data());
    base.exp_weights(row.data(), size, max, 0.7f, 0.01f, expected.data());
    for (const RowKernels* kernels : Kernels()) {
      SCOPED_TRACE(kernels->name);
      EXPECT_EQ(kernels->max(row.data(), size), max);
      EXPECT_EQ(kernels->sum_exp(row.data(), size, max, 0.7f, 0.01f, sums.data()), sum);
      EXPECT_EQ(sums, expected_sums);
      kernels->exp_weights(row.data(), size, max, 0.7f, 0.01f, weights.data());
      EXPECT_EQ(weights, expected);
    }
  }
}

TEST(RowKernels, FindReturnsTheFirstMatch) {
  for (const RowKernels* kernels : Kernels()) {
    for (int size : kSizes) {
      std::vector<float> row(size, 1.0f);
      EXPECT_EQ(kernels->find_greater(row.data(), 0, size, 1.0f), size);
      EXPECT_EQ(kernels->find_equal(row.data(), 0, size, 1.0f), 0);
      for (int at : {0, size / 2, size - 1}) {
        row[at] = 2.0f;
        row[size - 1] = 2.0f;
        EXPECT_EQ(kernels->find_greater(row.data(), 0, size, 1.0f), at);
        EXPECT_EQ(kernels->find_equal(row.data(), 0, size, 2.0f), at);
        EXPECT_EQ(kernels->find_equal(row.data(), at + 1, size, 2.0f),
                  at == size - 1 ? size : size - 1);
        row[at] = row[size - 1] = 1.0f;
      }
    }
  }
}

TEST(RowKernels, NanIsFoundAtEveryPlace) {
  for (const RowKernels* kernels : Kernels()) {
    for (int size : {1, 5, 64, 100}) {
      for (int at = 0; at < size; ++at) {
        std::vector<float> row(size, -1.0f);
        row[at] = kNan;
        EXPECT_TRUE(std::isnan(kernels->max(row.data(), size))) << size << " " << at;
      }
    }
  }
}

TEST(FindMax, TiesGoToTheLowestToken) {
  EXPECT_EQ(FindMax({1, 3, 2, 3}).token, 1);
  EXPECT_EQ(FindMax({-kInfinity, -kInfinity}).token, 0);
  std::vector<float> row(1000, 0.0f);
  row[700] = row[301] = 5;
  EXPECT_EQ(FindMax(row).token, 301);
  EXPECT_EQ(FindMax(row).value, 5);
}

TEST(SumExp, IsExactToAMillionth) {
  std::mt19937_64 random(TestSeed());
  for (int size : {1, 100, 49152}) {
    for (float scale : {0.3f, 1.0f, 20.0f}) {
      const std::vector<float> row = RandomRow(random, size);
      const float max = *std::max_element(row.begin(), row.end());
      double expected = 0;
      for (float x : row) expected += std::exp(static_cast<double>(x - max) * scale);
      EXPECT_NEAR(SumExp(row, max, scale) / expected, 1.0, 1e-6);
    }
  }
}

TEST(RowKernels, SmallWeightsAndBannedTokensAreLeftOut) {
  const std::vector<float> row = {0, -1, -kInfinity, -100, -3};
  std::vector<float> weights(5);
  kRowKernelsBaseline.exp_weights(row.data(), 5, 0, 1, 0.1f, weights.data());
  EXPECT_FLOAT_EQ(weights[0], 1);
  EXPECT_FLOAT_EQ(weights[1], std::exp(-1.0f));
  for (int i = 2; i < 5; ++i) EXPECT_EQ(weights[i], 0) << i;
}

TEST(DrawByWeight, TakesTheElementUnderTheTarget) {
  // Weights 1, 2 and 1 far apart, nothing between.
  std::vector<float> row(5000, -kInfinity);
  row[3] = row[4998] = 0;
  row[2500] = std::log(2.0f);
  const float max = row[2500];
  std::vector<double> scratch;
  auto draw = [&](double uniform) { return DrawByWeight(row, max, 1, 0, uniform, scratch); };
  EXPECT_EQ(draw(0), 3);
  EXPECT_EQ(draw(0.24), 3);
  EXPECT_EQ(draw(0.26), 2500);
  EXPECT_EQ(draw(0.74), 2500);
  EXPECT_EQ(draw(0.76), 4998);
  EXPECT_EQ(draw(0.99999999), 4998);
  EXPECT_EQ(draw(1.1), 4998) << "rounding past the end";
  EXPECT_EQ(DrawByWeight(row, max, 1, 0.6f, 0.99, scratch), 2500);
}

TEST(SumExpBefore, CountsTheBetterOnesAndEarlierTies) {
  const std::vector<float> row = {1, 3, 1, 2, 1, 3};
  const double w1 = std::exp(-2.0), w2 = std::exp(-1.0);
  const double expected[] = {2 + w2, 0, 2 + w2 + w1, 2, 2 + w2 + 2 * w1, 1};
  for (int token = 0; token < 6; ++token) {
    EXPECT_NEAR(SumExpBefore(row, 3, 1, token), expected[token], 1e-6) << token;
  }
}

TEST(TopK, EqualsAFullSort) {
  std::mt19937_64 random(TestSeed());
  std::vector<Candidate> out;
  for (int round = 0; round < 300; ++round) {
    const int size = 1 + static_cast<int>(random() % 3000);
    std::vector<float> row = RandomRow(random, size);
    if (round % 3 == 0) {  // many ties
      for (float& x : row) x = std::round(x);
    }
    if (round % 7 == 0) std::sort(row.begin(), row.end());
    std::vector<Candidate> sorted;
    for (int i = 0; i < size; ++i) sorted.push_back({row[i], i});
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    const int k = static_cast<int>(random() % 100) + (round % 10 == 0 ? 2000 : 0);
    TopK(row, k, out);
    ASSERT_EQ(static_cast<int>(out.size()), std::min(k, size));
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i].token, sorted[i].token) << "round " << round << " entry " << i;
      ASSERT_EQ(out[i].logit, sorted[i].logit);
    }
  }
}

}  // namespace
}  // namespace staffel
