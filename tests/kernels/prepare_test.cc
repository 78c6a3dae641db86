// Residual, RMS norm and activation forms against their definitions.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class PrepareTest : public CpuKernelTest {};

constexpr float kEps = 1e-5f;

std::vector<double> Normed(const std::vector<double>& x, const float* weight) {
  double squares = 0;
  for (double v : x) squares += v * v;
  std::vector<double> y(x);
  for (size_t i = 0; i < x.size(); i++) {
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + kEps) * weight[i];
  }
  return y;
}

TEST_P(PrepareTest, AddsAndNormalises) {
  Rng rng(TestSeed());
  for (int cols : {1, 5, 32, 37, 96, 576, 2050}) {
    for (int rows : {1, 8, 19}) {
      for (int mode = 0; mode < 6; mode++) {
        const bool has_delta = mode % 3 > 0, has_post = mode % 3 == 2, has_norm = mode >= 3;
        const int64_t stride = cols + 3;
        const auto x0 = RandomRows(rows * stride, rng), delta = RandomRows(rows * cols, rng);
        const auto post = RandomRows(cols, rng), norm = RandomRows(cols, rng);
        auto x = x0;
        Aligned<float> out(rows * cols);
        PrepareParams p;
        p.rows = rows;
        p.cols = cols;
        p.residual = x.data();
        p.residual_stride = stride;
        if (has_delta) p.delta = delta.data();
        p.delta_stride = cols;
        if (has_post) p.post_norm = post.data();
        if (has_norm) p.norm = norm.data();
        p.eps = kEps;
        p.out_f32 = out.data();
        p.out_f32_stride = cols;
        for (int t = 0; t < Tiles(rows); t++) {
          p.tile_begin = t;
          p.tile_end = t + 1;
          k().prepare(p);
        }
        for (int r = 0; r < rows; r++) {
          std::vector<double> want(&x0[r * stride], &x0[r * stride] + cols);
          std::vector<double> d(&delta[r * cols], &delta[r * cols] + cols);
          if (has_post) d = Normed(d, post.data());
          double size = 0;
          for (int c = 0; c < cols; c++) {
            if (has_delta) want[c] += d[c];
            size = std::max({size, std::abs(want[c]), std::abs(d[c])});
          }
          // The inverse root carries half of the relative error of a sum of `cols` squares.
          const double relative = (8 + cols / 2.0) * kEpsilon;
          for (int c = 0; c < cols; c++) {
            ASSERT_TRUE(Near(x[r * stride + c], want[c], relative * size, r, c, "residual"));
          }
          const auto y = has_norm ? Normed(want, norm.data()) : want;
          double top = size;
          for (double v : y) top = std::max(top, std::abs(v));
          // 1 / rms can magnify the residual's rounding.
          double squares = 0;
          for (double v : want) squares += v * v;
          const double inverse = 1 / std::sqrt(squares / cols + kEps);
          for (int c = 0; c < cols; c++) {
            const double bound =
                has_norm ? relative * (2 * std::abs(y[c]) + size * inverse * std::abs(norm[c]) +
                                       size * inverse * std::abs(y[c]))
                         : relative * size;
            ASSERT_TRUE(Near(out[r * cols + c], y[c], bound, r, c,
                             "mode " + std::to_string(mode) + " cols " + std::to_string(cols)));
          }
          for (int c = cols; c < stride; c++) ASSERT_EQ(x[r * stride + c], x0[r * stride + c]);
        }
      }
    }
  }
}

TEST_P(PrepareTest, FormsKeepWhatTheySay) {
  Rng rng(TestSeed());
  for (int cols : {1, 32, 37, 96, 576}) {
    for (int rows : {1, 7, 8, 9, 30}) {
      auto x = RandomRows(rows * cols, rng);
      for (int c = 0; c < std::min(cols, 32); c++) x[c] = 0;  // a block of zeros
      x[rows * cols - 1] = 1e-35f;                            // and a tiny value
      for (ActivationForm form : kAllForms) {
        const Prepared p(k(), form, x.data(), rows, cols);
        const auto got = ReadBack(p.activations);
        for (int r = 0; r < rows; r++) {
          const auto want = AsKept(form, &x[r * cols], cols);
          for (int c = 0; c < cols; c++) {
            ASSERT_TRUE(Near(got[r * cols + c], want[c], 1e-29, r, c,
                             "form " + std::to_string(static_cast<int>(form))));
          }
        }
      }
    }
  }
}

// q, scale, scale * sum, -sum per 32 and per 16, padding: as the integer products rely on them.
TEST_P(PrepareTest, SumsOfTilesAreThoseOfTheirCodes) {
  Rng rng(TestSeed());
  for (ActivationForm form : {ActivationForm::kInt8, ActivationForm::kInt16}) {
    const int planes = form == ActivationForm::kInt16 ? 2 : 1;
    const int rows = 11, cols = 96, padded = 128;
    const auto x = RandomRows(rows * cols, rng);
    const Prepared p(k(), form, x.data(), rows, cols);
    const int64_t stride = ActivationBytes(form, 8, cols);
    for (int r = 0; r < rows; r++) {
      const uint8_t* tile = p.memory.data() + r / 8 * stride;
      const int n = std::min(8, rows - r / 8 * 8), row = r % 8;
      const uint8_t* scales = tile + padded * planes * n;
      const int blocks = padded / 32 * n;
      for (int b = 0; b < padded / 32; b++) {
        int sums[2] = {0, 0};
        for (int c = 0; c < 32; c++) sums[c / 16] += CodeAt(tile, planes, n, row, 32 * b + c);
        float scale, scaled_sum;
        int32_t neg32, neg16[2];
        const int at = b * n + row;
        std::memcpy(&scale, scales + 4 * at, 4);
        std::memcpy(&scaled_sum, scales + 4 * (blocks + at), 4);
        std::memcpy(&neg32, scales + 4 * (2 * blocks + at), 4);
        std::memcpy(&neg16[0], scales + 4 * (3 * blocks + 2 * b * n + row), 4);
        std::memcpy(&neg16[1], scales + 4 * (3 * blocks + (2 * b + 1) * n + row), 4);
        EXPECT_EQ(neg32, -(sums[0] + sums[1]));
        EXPECT_EQ(neg16[0], -sums[0]);
        EXPECT_EQ(neg16[1], -sums[1]);
        EXPECT_EQ(scaled_sum, scale * static_cast<float>(sums[0] + sums[1]));
        if (b == 3) {
          EXPECT_EQ(scale, 0);
          EXPECT_EQ(neg32, 0);
        }
      }
    }
  }
}

TEST_P(PrepareTest, BitsOfARowDoNotDependOnTheBatch) {
  Rng rng(TestSeed());
  const int cols = 100, max_rows = 70;
  const auto x0 = RandomRows(max_rows * cols, rng), delta = RandomRows(max_rows * cols, rng);
  const auto norm = RandomRows(cols, rng);
  const auto run = [&](int first, int rows) {
    std::vector<float> x(&x0[first * cols], &x0[first * cols] + rows * cols), out(rows * cols);
    PrepareParams p;
    p.rows = rows;
    p.cols = cols;
    p.tile_end = Tiles(rows);
    p.residual = x.data();
    p.residual_stride = p.delta_stride = p.out_f32_stride = cols;
    p.delta = &delta[first * cols];
    p.post_norm = p.norm = norm.data();
    p.eps = kEps;
    p.out_f32 = out.data();
    k().prepare(p);
    return out;
  };
  for (int rows : {1, 2, 7, 8, 9, 33, 70}) {
    const int first = static_cast<int>(rng() % (max_rows - rows + 1));
    const auto together = run(first, rows);
    for (int r = 0; r < rows; r++) {
      ASSERT_TRUE(SameBits(&together[r * cols], run(first + r, 1).data(), cols, r, "prepare"));
    }
  }
}

STAFFEL_ALL_LEVELS(PrepareTest);

}  // namespace
}  // namespace staffel::kernels
