// Paged attention against a double loop over the stored keys and values.
#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/kernels/cpu_kernel_support.h"
#include "tests/support/seed.h"

namespace staffel::kernels {
namespace {

class AttentionTest : public CpuKernelTest {};

// One sequence's KV in a shuffled table of blocks; unused slots hold NaN.
struct Cache {
  Cache(int kv_heads, int head_dim, int block_size, int tokens, Rng& rng)
      : block_size(block_size),
        tokens(tokens),
        dim((head_dim + 15) / 16 * 16),
        memory(Subs(tokens, block_size) * KvSubBlockElements(kv_heads, head_dim), 0x7fc0),
        kv{memory.data(), kv_heads, head_dim} {
    const int count = (tokens + block_size - 1) / block_size;
    for (int b = 0; b < count; b++) blocks.push_back(b);
    std::shuffle(blocks.begin(), blocks.end(), rng);
    std::normal_distribution<float> normal;
    for (int t = 0; t < tokens; t++) {
      for (int h = 0; h < kv_heads; h++) {
        for (int i = 0; i < dim; i++) {
          key(h, t, i) = Bits(i < head_dim ? normal(rng) : 0);
          value(h, t, i) = Bits(i < head_dim ? normal(rng) : 0);
        }
      }
    }
  }
  static int64_t Subs(int tokens, int block_size) {
    return int64_t{(tokens + block_size - 1) / block_size} * block_size / 16;
  }
  static uint16_t Bits(float x) {
    return static_cast<uint16_t>(std::bit_cast<uint32_t>(Bf16Rounded(x)) >> 16);
  }
  uint16_t* block(int h, int t) const {
    const int64_t sub = int64_t{blocks[t / block_size]} * (block_size / 16) + t % block_size / 16;
    return kv.data + (sub * kv.kv_heads + h) * 32 * dim;
  }
  uint16_t& key(int h, int t, int i) const {
    return block(h, t)[i / 2 * 32 + 2 * (t % 16) + i % 2];
  }
  uint16_t& value(int h, int t, int i) const {
    return block(h, t)[16 * dim + t % 16 / 2 * 2 * dim + 2 * i + t % 2];
  }

  int block_size, tokens, dim;
  Aligned<uint16_t> memory;
  KvLayer kv;
  std::vector<int32_t> blocks;
};

double Float(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// out[head_dim] of one row, and the largest |value| it saw.
std::vector<double> Reference(const Cache& c, int h, const float* q, int limit, int window,
                              float scale, double* largest) {
  const int begin = window > 0 ? std::max(0, limit - window) : 0, dim = c.kv.head_dim;
  std::vector<double> scores;
  double top = -INFINITY, sum = 0;
  for (int t = begin; t < limit; t++) {
    double s = 0;
    for (int i = 0; i < dim; i++) s += q[i] * Float(c.key(h, t, i));
    scores.push_back(s * scale);
    top = std::max(top, scores.back());
  }
  for (double& s : scores) sum += s = std::exp(s - top);
  std::vector<double> out(dim);
  *largest = 0;
  for (int t = begin; t < limit; t++) {
    for (int i = 0; i < dim; i++) {
      const double v = Float(c.value(h, t, i));
      out[i] += scores[t - begin] / sum * v;
      *largest = std::max(*largest, std::abs(v));
    }
  }
  return out;
}

AttentionParams Params(const Cache& c, int head, int window, float scale, bool exact) {
  AttentionParams p;
  p.kv = &c.kv;
  p.kv_head = head;
  p.blocks = c.blocks.data();
  p.block_size = c.block_size;
  p.window = window;
  p.scale = scale;
  p.exact = exact;
  return p;
}

TEST_P(AttentionTest, EqualsDoubleLoops) {
  Rng rng(TestSeed());
  for (int dim : {64, 80, 96, 128, 256, 32, 20, 7}) {
    for (int block_size : {16, 48}) {
      const Cache cache(2, dim, block_size, 201, rng);
      const float scale = 1 / std::sqrt(static_cast<float>(dim));
      for (int window : {0, 1, 40, 130}) {
        for (bool exact : {false, true}) {
          for (int rows : {1, 3, 5, 8}) {
            const int head = static_cast<int>(rng() % 2);
            const auto q = RandomRows(rows * dim, rng);
            Aligned<float> out(rows * dim);
            AttentionParams p = Params(cache, head, window, scale, exact);
            p.rows = rows;
            // All limits up to the cache's last token, the first row always the longest.
            for (int m = 0; m < rows; m++) {
              p.q[m] = &q[m * dim];
              p.out[m] = out.data() + m * dim;
              p.limit[m] = m == 0 ? 201 - static_cast<int>(rng() % 8) % 3
                                  : 1 + static_cast<int>(rng() % 199);
            }
            k().attention(p);
            for (int m = 0; m < rows; m++) {
              double largest, q_size = 0;
              const auto want = Reference(cache, head, p.q[m], p.limit[m], window, scale, &largest);
              for (int i = 0; i < dim; i++) q_size += q[m * dim + i] * q[m * dim + i];
              // Scores err by epsilon * |q| |k| * scale (|k| about sqrt(dim)), which shifts
              // probabilities by that factor; probabilities are rounded once more. In exact mode
              // epsilon counts the operations of a dot product.
              const double epsilon = exact ? dim * kEpsilon : kBf16Epsilon;
              const double bound =
                  (std::sqrt(q_size) * scale * std::sqrt(dim) + 2) * epsilon * largest +
                  (exact ? 1e-6 : 1e-4);
              for (int i = 0; i < dim; i++) {
                ASSERT_TRUE(Near(out[m * dim + i], want[i], bound, m, i,
                                 "dim " + std::to_string(dim) + " limit " +
                                     std::to_string(p.limit[m]) + " window " +
                                     std::to_string(window) + (exact ? " exact" : "")));
              }
            }
          }
        }
      }
    }
  }
}

// Rows may come alone, in any company and in any chunk: the bits stay. NaN behind the longest limit
// of the call must not come through.
TEST_P(AttentionTest, BitsOfARowDoNotDependOnItsCompany) {
  Rng rng(TestSeed());
  for (int dim : {64, 96, 40}) {
    const int tokens = 150;
    const Cache cache(1, dim, 16, tokens, rng);
    const auto q = RandomRows(tokens * dim, rng);
    for (int window : {0, 30, 70}) {
      for (bool exact : {false, true}) {
        std::vector<float> alone(tokens * dim);
        for (int i = 0; i < tokens; i++) {
          AttentionParams p = Params(cache, 0, window, 0.125f, exact);
          p.rows = 1;
          p.q[0] = &q[i * dim];
          p.out[0] = &alone[i * dim];
          p.limit[0] = i + 1;
          k().attention(p);
          for (int d = 0; d < dim; d++) ASSERT_TRUE(std::isfinite(alone[i * dim + d]));
        }
        for (int first = 0; first < tokens;) {
          const int rows = std::min<int>(tokens - first, 1 + static_cast<int>(rng() % 8));
          std::vector<float> out(rows * dim);
          AttentionParams p = Params(cache, 0, window, 0.125f, exact);
          p.rows = rows;
          p.next = cache.block(0, 0);
          for (int m = 0; m < rows; m++) {
            const int i = first + (m * 5) % rows;  // any order
            p.q[m] = &q[i * dim];
            p.out[m] = &out[m * dim];
            p.limit[m] = i + 1;
          }
          k().attention(p);
          for (int m = 0; m < rows; m++) {
            ASSERT_TRUE(SameBits(&out[m * dim], &alone[(p.limit[m] - 1) * dim], dim, p.limit[m] - 1,
                                 "window " + std::to_string(window)));
          }
          first += rows;
        }
      }
    }
  }
}

TEST_P(AttentionTest, LargeScoresPickTheBestKey) {
  Rng rng(TestSeed());
  const int dim = 64;
  const Cache cache(1, dim, 16, 100, rng);
  for (int best : {0, 37, 99}) {
    std::vector<float> q(dim);
    for (int i = 0; i < dim; i++) q[i] = 300 * static_cast<float>(Float(cache.key(0, best, i)));
    std::vector<float> out(dim);
    AttentionParams p = Params(cache, 0, 0, 1.0f, false);
    p.rows = 1;
    p.q[0] = q.data();
    p.out[0] = out.data();
    p.limit[0] = 100;
    k().attention(p);
    for (int i = 0; i < dim; i++) ASSERT_NEAR(out[i], Float(cache.value(0, best, i)), 1e-6);
  }
}

STAFFEL_ALL_LEVELS(AttentionTest);

}  // namespace
}  // namespace staffel::kernels
