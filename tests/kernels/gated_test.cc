// The gated product against its definition, in every output form.
#include <algorithm>
#include <cmath>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class GatedTest : public CpuKernelTest {};

double GateValue(GateFunction f, double x) {
  if (f == GateFunction::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

struct Case {
  DType gate, up;
  int cols, outputs;
  ActivationType activations;
};
const Case kCases[] = {
    {DType::kQ4_1, DType::kQ4_1, 96, 64, ActivationType::kInt8},
    {DType::kQ4_1, DType::kQ4_1, 96, 64, ActivationType::kF32},
    {DType::kQ4_K, DType::kQ6_K, 256, 96, ActivationType::kInt8},
    {DType::kQ8_0, DType::kQ5_0, 64, 672, ActivationType::kInt8},
    {DType::kF32, DType::kF32, 37, 50, ActivationType::kF32},
    {DType::kBF16, DType::kBF16, 64, 33, ActivationType::kInt8},
    {DType::kQ5_K, DType::kF32, 256, 70, ActivationType::kF32},
    {DType::kQ5_1, DType::kQ5_1, 64, 40, ActivationType::kInt8},
    {DType::kQ4_1, DType::kQ4_1, 96, 64, ActivationType::kInt16},
    {DType::kQ6_K, DType::kQ8_0, 256, 80, ActivationType::kInt16},
};

struct Gated {
  Gated(const CpuKernels& k, const Case& c, Rng& rng)
      : gate(c.gate, c.outputs, c.cols, rng),
        up(c.up, c.outputs, c.cols, rng),
        packed_gate(k, gate.Part()),
        packed_up(k, up.Part()) {}
  StoredMatrix gate, up;
  Packed packed_gate, packed_up;
};

void RunPieces(const CpuKernels& k, GatedMatmulParams p, int group_step, int tile_step) {
  const int groups = Groups(p.gate->rows), tiles = Tiles(p.in->rows);
  for (int g = 0; g < groups; g += group_step) {
    for (int t = 0; t < tiles; t += tile_step) {
      p.group_begin = g;
      p.group_end = std::min(groups, g + group_step);
      p.tile_begin = t;
      p.tile_end = std::min(tiles, t + tile_step);
      k.gated_matmul(p);
    }
  }
}

// Plain outputs by two products: they are tested against double loops elsewhere.
std::vector<float> Products(const CpuKernels& k, const PackedMatrix& w, const Activations& in) {
  std::vector<float> out(int64_t{in.rows} * w.rows);
  MatmulParams p;
  p.weight = &w;
  p.in = &in;
  p.group_end = Groups(w.rows);
  p.tile_end = Tiles(in.rows);
  p.out = out.data();
  p.out_stride = w.rows;
  k.matmul(p);
  return out;
}

TEST_P(GatedTest, IsTheFunctionOfTheGateTimesTheUpProduct) {
  Rng rng(TestSeed());
  for (const Case& c : kCases) {
    for (GateFunction f : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
      const int rows = 13;
      const Gated m(k(), c, rng);
      const auto x = RandomRows(rows * c.cols, rng, 3);
      const Prepared in(k(), FormFor(c.gate, c.activations), x.data(), rows, c.cols);
      const auto gate = Products(k(), m.packed_gate.matrix, in.activations);
      const auto up = Products(k(), m.packed_up.matrix, in.activations);
      Aligned<float> out(rows * c.outputs);
      GatedMatmulParams p;
      p.gate = &m.packed_gate.matrix;
      p.up = &m.packed_up.matrix;
      p.in = &in.activations;
      p.function = f;
      p.out_f32 = out.data();
      p.out_f32_stride = c.outputs;
      RunPieces(k(), p, 1, 1);
      for (int i = 0; i < rows * c.outputs; i++) {
        const double want = GateValue(f, gate[i]) * up[i];
        // A dozen operations; the exponent of e^u is rounded to |u| * epsilon, u up to about 2 x^3.
        const double u = std::abs(gate[i]) + std::abs(std::pow(gate[i], 3));
        const double bound = (16 + 4 * u) * kEpsilon * std::abs(double{gate[i]} * up[i]) + 1e-12;
        ASSERT_TRUE(Near(out[i], want, bound, i / c.outputs, i % c.outputs,
                         std::string(InfoOf(c.gate).name) + " " + InfoOf(c.up).name));
      }
    }
  }
}

TEST_P(GatedTest, ExtremeGatesStayFinite) {
  // Weight [[1]] in both: h = f(x) * x.
  WeightPart one;
  const float weight = 1;
  one.type = DType::kF32;
  one.bytes = reinterpret_cast<const uint8_t*>(&weight);
  one.row_stride_bytes = 4;
  one.rows = one.cols = 1;
  const Packed w(k(), one);
  for (GateFunction f : {GateFunction::kSilu, GateFunction::kGeluTanh}) {
    for (float x : {-1e4f, -200.0f, -88.5f, -20.0f, 0.0f, 20.0f, 88.5f, 200.0f, 1e4f}) {
      const Prepared in(k(), ActivationForm::kF32, &x, 1, 1);
      float out = NAN;
      GatedMatmulParams p;
      p.gate = p.up = &w.matrix;
      p.in = &in.activations;
      p.function = f;
      p.out_f32 = &out;
      p.out_f32_stride = 1;
      RunPieces(k(), p, 1, 1);
      const double want = GateValue(f, x) * x;
      ASSERT_TRUE(Near(out, want, 1e-5 * std::abs(want) + 1e-5, 0, 0, std::to_string(x)));
    }
  }
}

// The form of the output changes nothing but its rounding: the tiles are those that `prepare` makes
// of the f32 output, padding included, whatever the pieces.
TEST_P(GatedTest, ActivationsAreThoseOfTheF32Output) {
  Rng rng(TestSeed());
  for (const Case& c : kCases) {
    for (int rows : {1, 8, 21}) {
      const Gated m(k(), c, rng);
      const auto x = RandomRows(rows * c.cols, rng);
      const Prepared in(k(), FormFor(c.gate, c.activations), x.data(), rows, c.cols);
      Aligned<float> h(rows * c.outputs);
      GatedMatmulParams p;
      p.gate = &m.packed_gate.matrix;
      p.up = &m.packed_up.matrix;
      p.in = &in.activations;
      p.out_f32 = h.data();
      p.out_f32_stride = c.outputs;
      RunPieces(k(), p, 4, 1);
      p.out_f32 = nullptr;
      for (ActivationForm form : kAllForms) {
        const Prepared want(k(), form, h.data(), rows, c.outputs);
        for (int step : {2, 6}) {
          const Prepared got(form, rows, c.outputs);
          p.out = &got.activations;
          RunPieces(k(), p, step, 2);
          for (int tile = 0; tile < Tiles(rows); tile++) {
            const int n = std::min(kTileRows, rows - tile * kTileRows);
            const int64_t stride = ActivationBytes(form, kTileRows, c.outputs);
            // A tile of n rows fills n / 8 of its bytes.
            ASSERT_EQ(std::vector<uint8_t>(want.memory.data() + tile * stride,
                                           want.memory.data() + tile * stride + stride * n / 8),
                      std::vector<uint8_t>(got.memory.data() + tile * stride,
                                           got.memory.data() + tile * stride + stride * n / 8))
                << InfoOf(c.gate).name << " form " << static_cast<int>(form) << " rows " << rows
                << " tile " << tile;
          }
        }
      }
    }
  }
}

STAFFEL_ALL_LEVELS(GatedTest);

}  // namespace
}  // namespace staffel::kernels
