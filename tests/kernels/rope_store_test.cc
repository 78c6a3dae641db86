// Rope, per-head norm and the KV store against kernels/ref and the layout's description.
#include <algorithm>
#include <cmath>

#include "kernels/ref/ops.h"
#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class RopeStoreTest : public CpuKernelTest {};

struct Case {
  int q_heads, kv_heads, head_dim, rope_dim;
  RopePairs pairs;
  bool norm;
};
const Case kCases[] = {
    {9, 3, 64, 64, RopePairs::kInterleaved, false}, {14, 2, 64, 64, RopePairs::kHalves, false},
    {4, 1, 256, 256, RopePairs::kHalves, true},     {4, 4, 80, 32, RopePairs::kHalves, false},
    {4, 2, 96, 48, RopePairs::kInterleaved, true},  {3, 1, 20, 20, RopePairs::kInterleaved, false},
    {2, 2, 7, 6, RopePairs::kHalves, true},
};

std::vector<float> CosSin(int positions, int rope_dim, double base) {
  std::vector<float> table(positions * rope_dim);
  for (int p = 0; p < positions; p++) {
    for (int i = 0; i < rope_dim / 2; i++) {
      const double angle = p * std::pow(base, -2.0 * i / rope_dim);
      table[p * rope_dim + 2 * i] = static_cast<float>(std::cos(angle));
      table[p * rope_dim + 2 * i + 1] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

TEST_P(RopeStoreTest, RotatesAndStores) {
  Rng rng(TestSeed());
  constexpr int kPositions = 300;
  constexpr double kBase = 10000;
  for (const Case& c : kCases) {
    const int rows = 37, width = (c.q_heads + 2 * c.kv_heads) * c.head_dim, stride = width + 5;
    const int start = 30, dim = (c.head_dim + 15) / 16 * 16;
    const auto table = CosSin(kPositions, c.rope_dim, kBase);
    const auto q_norm = RandomRows(c.head_dim, rng), k_norm = RandomRows(c.head_dim, rng);
    const auto before = RandomRows(rows * stride, rng);
    auto qkv = before;
    std::vector<int32_t> positions(rows), sub_blocks(rows);
    const int order[] = {4, 2, 0, 3, 1};  // where the 16-token runs of the sequence lie
    for (int r = 0; r < rows; r++) {
      positions[r] = start + r;
      sub_blocks[r] = order[(start + r) / 16];
    }
    Aligned<uint16_t> memory(5 * KvSubBlockElements(c.kv_heads, c.head_dim), 0x7fc0);  // NaN
    const KvLayer kv{memory.data(), c.kv_heads, c.head_dim};
    RopeStoreParams p;
    p.qkv = qkv.data();
    p.qkv_stride = stride;
    p.q_heads = c.q_heads;
    p.rope_dim = c.rope_dim;
    p.pairs = c.pairs;
    p.cos_sin = table.data();
    p.positions = positions.data();
    p.sub_blocks = sub_blocks.data();
    if (c.norm) p.q_norm = q_norm.data(), p.k_norm = k_norm.data();
    p.norm_eps = 1e-6f;
    p.kv = &kv;
    for (int r = 0; r < rows; r += 10) {
      for (int h = 0; h < c.kv_heads; h++) {
        p.row_begin = r;
        p.row_end = std::min(rows, r + 10);
        p.q_head_begin = c.q_heads * h / c.kv_heads;
        p.q_head_end = c.q_heads * (h + 1) / c.kv_heads;
        p.kv_head_begin = h;
        p.kv_head_end = h + 1;
        k().rope_store(p);
      }
    }
    for (int r = 0; r < rows; r++) {
      for (int h = 0; h < c.q_heads + 2 * c.kv_heads; h++) {
        std::vector<float> want(&before[r * stride + h * c.head_dim],
                                &before[r * stride + h * c.head_dim] + c.head_dim);
        const float* got = &qkv[r * stride + h * c.head_dim];
        const bool is_value = h >= c.q_heads + c.kv_heads;
        if (!is_value) {
          const float* norm = (h < c.q_heads ? q_norm : k_norm).data();
          if (c.norm) ref::RmsNorm(want.data(), norm, 1e-6f, 1, c.head_dim, want.data());
          ref::Rope(
              {c.rope_dim,
               c.pairs == RopePairs::kHalves ? RopeStyle::kHalves : RopeStyle::kInterleaved, kBase},
              positions[r], want.data());
        }
        double size = 0;
        for (float v : want) size = std::max(size, std::abs(double{v}));
        for (int i = 0; i < c.head_dim; i++) {
          // Norm and rotation are a dozen f32 operations, its sum one per dim.
          const double bound = is_value ? 0 : (16 + c.head_dim) * kEpsilon * 2 * size;
          ASSERT_TRUE(Near(got[i], want[i], bound, r, h * c.head_dim + i,
                           "head_dim " + std::to_string(c.head_dim)));
        }
        if (h < c.q_heads) continue;
        const int head = (h - c.q_heads) % c.kv_heads, slot = positions[r] % 16;
        const uint16_t* block =
            memory.data() + (int64_t{sub_blocks[r]} * c.kv_heads + head) * 32 * dim;
        for (int i = 0; i < dim; i++) {
          const uint16_t bits = is_value ? block[16 * dim + slot / 2 * 2 * dim + 2 * i + slot % 2]
                                         : block[i / 2 * 32 + 2 * slot + i % 2];
          const float stored = std::bit_cast<float>(uint32_t{bits} << 16);
          ASSERT_EQ(stored, i < c.head_dim ? Bf16Rounded(got[i]) : 0.0f)
              << "row " << r << " head " << h << " dim " << i;
        }
      }
      for (int i = width; i < stride; i++) ASSERT_EQ(qkv[r * stride + i], before[r * stride + i]);
    }
    // Slots of other tokens were left alone.
    const uint16_t* block = memory.data() + int64_t{order[4]} * c.kv_heads * 32 * dim;
    const int used = (start + rows) % 16;  // of the last sub-block: 67 % 16
    EXPECT_EQ(block[2 * used], 0x7fc0);
  }
}

STAFFEL_ALL_LEVELS(RopeStoreTest);

}  // namespace
}  // namespace staffel::kernels
