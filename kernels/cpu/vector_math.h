// exp, sums and selections over long rows.
#pragma once

#include "kernels/cpu/lanes.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// e^x to about 1e-7 relative; 0 below -87.3 (where f32 turns subnormal), e^88 above 88.
// x = n ln 2 + r with |r| <= ln 2 / 2, ln 2 in two parts so that r is exact; Taylor to r^6.
STAFFEL_INLINE F32 Exp(F32 x) {
  const F32 lowest = Set(-87.3f);
  const F32 clamped = MinF(MaxF(x, lowest), Set(88.0f));
  const F32 n = RoundF(Mul(clamped, Set(1.44269504f)));
  F32 r = Fma(n, Set(-0.693145752f), clamped);
  r = Fma(n, Set(-1.42860677e-6f), r);
  F32 p = Set(1.0f / 720);
  p = Fma(p, r, Set(1.0f / 120));
  p = Fma(p, r, Set(1.0f / 24));
  p = Fma(p, r, Set(1.0f / 6));
  p = Fma(p, r, Set(0.5f));
  p = Fma(p, r, Set(1.0f));
  p = Fma(p, r, Set(1.0f));
  return ZeroWhereLess(ScaleByPower(p, n), x, lowest);
}

inline void AddTo(float* y, const float* x, int64_t count) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) Store(y + i, Add(Load(y + i), Load(x + i)));
  for (; i < count; i++) y[i] += x[i];
}

inline constexpr float kLowest = -__builtin_inff();

// Vector i of a row whose last one is partial, -infinity in the missing lanes.
STAFFEL_INLINE F32 LoadOrLowest(const float* x, int64_t i, int64_t count) {
  if (i + kLanes <= count) return Load(x + i);
  const int n = static_cast<int>(count - i);
  return KeepLanes(LoadFirst(x + i, n), 0, n, Set(kLowest));
}

inline float MaxOf(const float* x, int64_t count) {
  F32 top[4] = {Set(kLowest), Set(kLowest), Set(kLowest), Set(kLowest)};
  int64_t i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; j++) top[j] = MaxF(Load(x + i + kLanes * j), top[j]);
  }
  for (; i < count; i += kLanes) top[0] = MaxF(LoadOrLowest(x, i, count), top[0]);
  return ReduceMax(MaxF(MaxF(top[0], top[1]), MaxF(top[2], top[3])));
}

inline SoftmaxStats StatsOf(const float* x, int64_t count) {
  SoftmaxStats stats;
  stats.max = MaxOf(x, count);
  if (stats.max == kLowest) {  // nothing but -infinity and NaN: the uniform distribution
    stats.sum = static_cast<double>(count);
    return stats;
  }
  const F32 max = Set(stats.max);
  // f32 sums over 64 vectors (relative error below 64 * 2^-24), f64 over those.
  for (int64_t i = 0; i < count;) {
    const int64_t end = count - i < 64 * kLanes ? count : i + 64 * kLanes;
    F32 sum = Zero();
    for (; i < end; i += kLanes) {
      const F32 v = MaxF(LoadOrLowest(x, i, count), Set(kLowest));
      sum = Add(sum, Exp(Sub(v, max)));
    }
    stats.sum += static_cast<double>(ReduceAdd(sum));
    i = end;
  }
  return stats;
}

inline int32_t ArgMax(const float* x, int64_t count) {
  const F32 max = Set(MaxOf(x, count));
  for (int64_t i = 0; i < count; i += kLanes) {
    const uint32_t equal = EqualMask(LoadOrLowest(x, i, count), max);
    if (equal != 0) {
      const int64_t at = i + __builtin_ctz(equal);
      if (at < count) return static_cast<int32_t>(at);
    }
  }
  return 0;
}

// Whether a stands behind b: smaller, or equal with the higher id. NaN is taken as -infinity.
STAFFEL_INLINE bool Behind(const ScoredId& a, const ScoredId& b) {
  return a.value < b.value || (a.value == b.value && a.id > b.id);
}

// Restores the heap whose root (the entry that stands behind all others) was replaced.
STAFFEL_INLINE void SiftDown(ScoredId* heap, int size, int at) {
  const ScoredId item = heap[at];
  for (;;) {
    int child = 2 * at + 1;
    if (child >= size) break;
    if (child + 1 < size && Behind(heap[child + 1], heap[child])) child++;
    if (!Behind(heap[child], item)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = item;
}

// A heap of the k best so far; a vector whose lanes all are at most its worst is skipped (a later
// equal value has the higher id). Of n values in random order about k ln(n / k) enter the heap.
inline int TopK(const float* x, int64_t count, int k, ScoredId* out) {
  if (k > count) k = static_cast<int>(count);
  if (k <= 0) return 0;
  const auto item = [&](int64_t i) {
    const float v = x[i];
    return ScoredId{v == v ? v : kLowest, static_cast<int32_t>(i)};
  };
  for (int i = 0; i < k; i++) out[i] = item(i);
  for (int i = k / 2 - 1; i >= 0; i--) SiftDown(out, k, i);
  for (int64_t i = k; i < count; i += kLanes) {
    const F32 v = LoadOrLowest(x, i, count);
    for (uint32_t m = GreaterMask(v, Set(out[0].value)); m != 0; m &= m - 1) {
      const ScoredId candidate = item(i + __builtin_ctz(m));
      if (!Behind(out[0], candidate)) continue;
      out[0] = candidate;
      SiftDown(out, k, 0);
    }
  }
  for (int size = k - 1; size > 0; size--) {  // heap sort: the worst goes last
    const ScoredId worst = out[0];
    out[0] = out[size];
    out[size] = worst;
    SiftDown(out, size, 0);
  }
  return k;
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
