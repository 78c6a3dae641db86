#include "worker/row_math.h"

#include <algorithm>
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
  return BestRowKernels().sum_exp(row.data(), Size(row), max, scale);
}

double ExpWeights(absl::Span<const float> row, float max, float scale, float min,
                  absl::Span<float> weights) {
  return BestRowKernels().exp_weights(row.data(), Size(row), max, scale, min, weights.data());
}

TokenId FindInCumulative(absl::Span<const float> weights, double target) {
  // Whole stretches are added in float lanes first; within the one that crosses, one by one.
  constexpr int kStretch = 256;
  const int size = Size(weights);
  double sum = 0;
  int last = 0;
  for (int begin = 0; begin < size; begin += kStretch) {
    const int end = std::min(size, begin + kStretch);
    float lanes[8] = {};
    int i = begin;
    for (; i + 8 <= end; i += 8) {
      for (int j = 0; j < 8; ++j) lanes[j] += weights[i + j];
    }
    for (; i < end; ++i) lanes[0] += weights[i];
    double stretch = 0;
    for (float lane : lanes) stretch += lane;
    if (stretch > 0) last = begin;
    if (sum + stretch > target) {
      for (i = begin; i < end; ++i) {
        sum += weights[i];
        if (sum > target && weights[i] > 0) return i;
      }
    } else {
      sum += stretch;
    }
  }
  for (int i = std::min(size, last + kStretch) - 1; i > last; --i) {
    if (weights[i] > 0) return i;
  }
  return last;
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
