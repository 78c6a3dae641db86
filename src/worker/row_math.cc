#include "worker/row_math.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "worker/row_kernels.h"

namespace staffel {
namespace {

bool Better(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

int Size(absl::Span<const float> row) { return static_cast<int>(row.size()); }

}  // namespace

const RowKernels& BestRowKernels() {
#if defined(__x86_64__)
  static const RowKernels& best = __builtin_cpu_supports("avx512f") ? kRowKernelsAvx512
                                  : __builtin_cpu_supports("avx2")  ? kRowKernelsAvx2
                                                                    : kRowKernelsBaseline;
  return best;
#else
  return kRowKernelsBaseline;
#endif
}

RowMax FindMax(absl::Span<const float> row) {
  const RowKernels& kernels = BestRowKernels();
  const float max = kernels.max(row.data(), Size(row));
  if (max != max) return {0, max};
  return {kernels.find_equal(row.data(), 0, Size(row), max), max};
}

double SumExp(absl::Span<const float> row, float max, float scale) {
  return BestRowKernels().sum_exp(row.data(), Size(row), max, scale, 0, nullptr);
}

TokenId DrawByWeight(absl::Span<const float> row, float max, float scale, float min, double uniform,
                     std::vector<double>& scratch) {
  // The sums of blocks tell the block; only its weights are computed one by one.
  const RowKernels& kernels = BestRowKernels();
  const int size = Size(row), blocks = (size + kRowBlock - 1) / kRowBlock;
  scratch.resize(blocks);
  double target = uniform * kernels.sum_exp(row.data(), size, max, scale, min, scratch.data());
  int block = 0, last = 0;  // last: that has any weight, should rounding leave the target beyond
  for (; block < blocks && target >= scratch[block]; ++block) {
    if (scratch[block] > 0) last = block;
    target -= scratch[block];
  }
  if (block == blocks) block = last;
  const auto part = row.subspan(block * kRowBlock, kRowBlock);
  float weights[kRowBlock];
  kernels.exp_weights(part.data(), Size(part), max, scale, min, weights);
  int chosen = 0;
  for (int i = 0; i < Size(part); ++i) {
    if (!(weights[i] > 0)) continue;
    chosen = i;
    if (target < weights[i]) break;
    target -= weights[i];
  }
  return block * kRowBlock + chosen;
}

double SumExpBefore(absl::Span<const float> row, float max, float scale, TokenId token) {
  const RowKernels& kernels = BestRowKernels();
  float weight = 0;
  kernels.exp_weights(&row[token], 1, max, scale, 0, &weight);
  double sum =
      kernels.sum_exp(row.data(), Size(row), max, scale, std::nextafter(weight, 2.0f), nullptr);
  for (int i = 0; (i = kernels.find_equal(row.data(), i, token, row[token])) < token; ++i) {
    sum += weight;
  }
  return sum;
}

void TopK(absl::Span<const float> row, int k, std::vector<Candidate>& out) {
  const RowKernels& kernels = BestRowKernels();
  const int size = Size(row);
  k = std::min(k, size);
  out.clear();
  if (k <= 0) return;
  // Candidates gather up to twice k, then the worse half goes. A later element must beat the k-th
  // strictly: on a tie the earlier, lower token stays.
  const int full = std::min(size, std::max(2 * k, 64));
  out.reserve(full);
  auto prune = [&] {
    std::nth_element(out.begin(), out.begin() + (k - 1), out.end(), Better);
    out.resize(k);
  };
  int i = 0;
  for (; i < full; ++i) out.push_back({row[i], i});
  while (i < size) {
    prune();
    const float bound = out[k - 1].logit;
    while (static_cast<int>(out.size()) < full) {
      i = kernels.find_greater(row.data(), i, size, bound);
      if (i == size) break;
      out.push_back({row[i], i});
      ++i;
    }
  }
  if (static_cast<int>(out.size()) > k) prune();
  std::sort(out.begin(), out.end(), Better);
}

}  // namespace staffel
