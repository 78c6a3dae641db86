// Matrix products against double loops over the same activations, and their batch invariance.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class MatmulTest : public CpuKernelTest {};

struct Case {
  DType type;
  ActivationForm form;
  std::string name() const {
    const char* forms[] = {"int8", "int16", "bf16", "f32"};
    return std::string(InfoOf(type).name) + " x " + forms[static_cast<int>(form)];
  }
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (DType type : AllTypes()) {
    for (ActivationType activations : kActivationTypes) {
      const Case c{type, FormFor(type, activations)};
      if (cases.empty() || cases.back().name() != c.name()) cases.push_back(c);
    }
  }
  return cases;
}

std::vector<int> ColsOf(DType type) {
  const int block = InfoOf(type).block_elements;
  if (block == 256) return {256, 768};
  if (block == 32) return {32, 96, 576};
  return {1, 37, 64, 200};
}

// out[rows, outputs] of the whole product, by groups and tiles in pieces if `pieces`.
void Multiply(const CpuKernels& k, const PackedMatrix& w, const Activations& in, bool pieces,
              MatmulParams p) {
  p.weight = &w;
  p.in = &in;
  const int groups = Groups(w.rows), tiles = Tiles(in.rows);
  const int group_step = pieces ? 1 : groups, tile_step = pieces ? 2 : tiles;
  for (int g = 0; g < groups; g += group_step) {
    for (int t = 0; t < tiles; t += tile_step) {
      p.group_begin = g;
      p.group_end = g + group_step;
      p.tile_begin = t;
      p.tile_end = std::min(tiles, t + tile_step);
      k.matmul(p);
    }
  }
}

// f32 rounding of a sum of k products of size w * x, in at most k + k / 8 operations (one per block
// and scale, or one per k), each relative to the partial sums. Types with mins split a weight into
// two larger terms: 4 covers both.
double Bound(const StoredMatrix& w, int output, const std::vector<double>& x) {
  double sum = 0, top = 0;
  for (int c = 0; c < w.cols; c++) {
    sum += std::abs(x[c]);
    top = std::max(top, std::abs(double{w.at(output, c)}));
  }
  return (4 + w.cols / 8.0) * kEpsilon * 4 * top * sum + 1e-12;
}

TEST_P(MatmulTest, EqualsDoubleLoops) {
  Rng rng(TestSeed());
  for (const Case& c : Cases()) {
    for (int cols : ColsOf(c.type)) {
      for (int outputs : {1, 16, 37}) {
        for (int rows : {1, 3, 8, 13}) {
          const StoredMatrix w(c.type, outputs, cols, rng);
          const Packed packed(k(), w.Part());
          const auto x = RandomRows(int64_t{rows} * cols, rng);
          const Prepared in(k(), c.form, x.data(), rows, cols);
          Aligned<float> out(int64_t{rows} * outputs);
          MatmulParams p;
          p.out = out.data();
          p.out_stride = outputs;
          Multiply(k(), packed.matrix, in.activations, false, p);
          for (int r = 0; r < rows; r++) {
            const auto kept = AsKept(c.form, &x[int64_t{r} * cols], cols);
            for (int o = 0; o < outputs; o++) {
              double want = 0;
              for (int i = 0; i < cols; i++) want += kept[i] * w.at(o, i);
              ASSERT_TRUE(Near(out[int64_t{r} * outputs + o], want, Bound(w, o, kept), r, o,
                               c.name() + " k=" + std::to_string(cols)));
            }
          }
        }
      }
    }
  }
}

TEST_P(MatmulTest, BitsOfARowDoNotDependOnTheBatch) {
  Rng rng(TestSeed());
  constexpr int kMaxRows = 70, kOutputs = 41;
  for (const Case& c : Cases()) {
    const int cols = InfoOf(c.type).block_elements == 256 ? 512 : 96;
    const StoredMatrix w(c.type, kOutputs, cols, rng);
    const Packed packed(k(), w.Part());
    const auto x = RandomRows(int64_t{kMaxRows} * cols, rng);
    std::vector<float> alone(kMaxRows * kOutputs);
    for (int r = 0; r < kMaxRows; r++) {
      const Prepared in(k(), c.form, &x[int64_t{r} * cols], 1, cols);
      MatmulParams p;
      p.out = &alone[r * kOutputs];
      p.out_stride = kOutputs;
      Multiply(k(), packed.matrix, in.activations, false, p);
    }
    for (int rows = 1; rows <= kMaxRows; rows += rows < 18 ? 1 : 13) {
      const int first = static_cast<int>(rng() % (kMaxRows - rows + 1));
      const Prepared in(k(), c.form, &x[int64_t{first} * cols], rows, cols);
      Aligned<float> out(int64_t{rows} * kOutputs);
      MatmulParams p;
      p.out = out.data();
      p.out_stride = kOutputs;
      Multiply(k(), packed.matrix, in.activations, rows % 2 == 0, p);
      for (int r = 0; r < rows; r++) {
        ASSERT_TRUE(SameBits(out.data() + r * kOutputs, &alone[(first + r) * kOutputs], kOutputs, r,
                             c.name() + " rows=" + std::to_string(rows)));
      }
    }
  }
}

TEST_P(MatmulTest, BiasIsAddedAndResidualAccumulates) {
  Rng rng(TestSeed());
  const int rows = 11, outputs = 35, cols = 64, stride = 50;
  const StoredMatrix w(DType::kQ5_1, outputs, cols, rng);
  const Packed packed(k(), w.Part());
  const auto x = RandomRows(rows * cols, rng), bias = RandomRows(outputs, rng);
  const Prepared in(k(), ActivationForm::kInt16, x.data(), rows, cols);
  Aligned<float> plain(rows * outputs), out(rows * stride, 3.0f);
  MatmulParams p;
  p.out = plain.data();
  p.out_stride = outputs;
  Multiply(k(), packed.matrix, in.activations, false, p);
  p.out = out.data() + 7;  // this matrix's outputs are columns 7..41 of wider rows
  p.out_stride = stride;
  p.bias = bias.data();
  Multiply(k(), packed.matrix, in.activations, false, p);
  p.accumulate = true;
  p.bias = nullptr;
  Multiply(k(), packed.matrix, in.activations, false, p);
  for (int r = 0; r < rows; r++) {
    for (int c = 0; c < stride; c++) {
      const float got = out[r * stride + c];
      if (c < 7 || c >= 7 + outputs) {
        ASSERT_EQ(got, c < stride ? 3.0f : 0) << "row " << r << " col " << c << " is not ours";
        continue;
      }
      const float y = plain[r * outputs + c - 7];
      ASSERT_EQ(got, (y + bias[c - 7]) + y) << "row " << r << " col " << c;
    }
  }
}

TEST_P(MatmulTest, LargestCodesDoNotOverflow) {
  // Every weight at the end of its range against the largest activations, and against the smallest
  // low plane (a code is 128 * high + low).
  const int cols = 512;
  for (DType type : kQuantisedTypes) {
    for (uint8_t fill : {0x00, 0x7f, 0x80, 0xff}) {
      Rng rng(1);
      StoredMatrix w(type, 1, cols, rng);
      const DTypeInfo& info = InfoOf(type);
      const int head = type == DType::kQ8_0 || type == DType::kQ4_0                           ? 2
                       : type == DType::kQ4_1                                                 ? 4
                       : type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kQ6_K ? 16
                       : type == DType::kQ5_0                                                 ? 2
                                                                                              : 4;
      for (int at = 0; at < w.row_bytes; at += info.block_bytes) {
        const int tail = type == DType::kQ6_K ? 18 : 0;
        const int begin = type == DType::kQ6_K ? 0 : head;
        std::memset(&w.bytes[at + begin], fill, info.block_bytes - begin - tail);
      }
      const StoredMatrix& fixed = w;
      const Packed packed(k(), fixed.Part());
      Aligned<float> row(cols);
      k().decode_row(fixed.Part(), 0, 1.0f, row.data());
      std::vector<float> x(cols);
      for (float value : {-16319.0f, 16319.0f, -64.0f}) {
        for (auto& v : x) v = value;
        if (value == -64) x[0] = x[cols / 2] = 16319;
        for (ActivationForm form : {ActivationForm::kInt8, ActivationForm::kInt16}) {
          const Prepared in(k(), form, x.data(), 1, cols);
          const auto kept = AsKept(form, x.data(), cols);
          float out = 0;
          MatmulParams p;
          p.out = &out;
          p.out_stride = 1;
          Multiply(k(), packed.matrix, in.activations, false, p);
          double want = 0, size = 0;
          for (int c = 0; c < cols; c++) {
            want += double{row[c]} * kept[c];
            size += std::abs(double{row[c]} * kept[c]);
          }
          ASSERT_TRUE(Near(out, want, 100 * kEpsilon * (size + 16319), 0, 0, info.name));
        }
      }
    }
  }
}

STAFFEL_ALL_LEVELS(MatmulTest);

}  // namespace
}  // namespace staffel::kernels
