#include "comm/mesh/rank_sum.h"

#include <algorithm>
#include <cstring>

namespace staffel {
namespace {

// An element of `out` depends on the same element of the parts only: aliasing is harmless.
void SumTwo(const float* a, const float* b, size_t count, float* out) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) out[i] = (0.0f + a[i]) + b[i];
}

void SumFour(const float* a, const float* b, const float* c, const float* d, size_t count,
             float* out) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) out[i] = (((0.0f + a[i]) + b[i]) + c[i]) + d[i];
}

}  // namespace

void SumInOrder(absl::Span<const float* const> parts, size_t count, float* out) {
  if (parts.size() == 2) return SumTwo(parts[0], parts[1], count, out);
  if (parts.size() == 4) return SumFour(parts[0], parts[1], parts[2], parts[3], count, out);
  constexpr size_t kTile = 1024;  // 4 KiB: stays in the first-level cache
  float sum[kTile];
  for (size_t begin = 0; begin < count; begin += kTile) {
    const size_t size = std::min(kTile, count - begin);
    for (size_t i = 0; i < size; ++i) sum[i] = 0.0f;
    for (const float* part : parts) {
      for (size_t i = 0; i < size; ++i) sum[i] += part[begin + i];
    }
    std::memcpy(out + begin, sum, size * sizeof(float));
  }
}

}  // namespace staffel
