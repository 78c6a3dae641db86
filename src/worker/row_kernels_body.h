// Body of the row kernels for registers of kWidth floats (4, 8 or 16), a constant that the
// including file defines in namespace staffel's unnamed namespace. Only always-inlined functions
// and no library templates: nothing compiled for a newer instruction set may be shared with other
// files.
#include <cstdint>

#include "worker/row_kernels.h"

#define STAFFEL_INLINE inline __attribute__((always_inline))

namespace staffel {
namespace {

constexpr int kLanes = 16;
constexpr int kRegisters = kLanes / kWidth;

typedef float Floats __attribute__((vector_size(kWidth * 4)));
typedef int32_t Ints __attribute__((vector_size(kWidth * 4)));

STAFFEL_INLINE Floats Load(const float* p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
STAFFEL_INLINE void Store(float* p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
STAFFEL_INLINE Floats Splat(float x) { return x - Floats{}; }
STAFFEL_INLINE Floats AsFloats(Ints v) {
  Floats out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}
STAFFEL_INLINE Ints AsInts(Floats v) {
  Ints out;
  __builtin_memcpy(&out, &v, sizeof out);
  return out;
}

STAFFEL_INLINE bool Any(Ints mask) {
  uint64_t words[kWidth / 2];
  __builtin_memcpy(words, &mask, sizeof mask);
  uint64_t any = 0;
  for (int i = 0; i < kWidth / 2; ++i) any |= words[i];
  return any != 0;
}

// 16 partial sums, added as a tree.
STAFFEL_INLINE float SumLanes(const Floats* sums) {
  float lanes[kLanes];
  for (int r = 0; r < kRegisters; ++r) Store(lanes + r * kWidth, sums[r]);
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// exp(x) for x <= 0, relative error 2e-7: range reduction by ln 2 in two parts, then a polynomial
// of degree 6 in the rest (coefficients of Cephes' expf). 0 below -87, where normal floats end.
STAFFEL_INLINE Floats Exp(Floats x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const Ints in_range = x >= Splat(-87.0f);
  x = AsFloats(AsInts(x) & in_range);
  const Floats shifted = x * 1.44269504f + kRound;
  const Floats n = shifted - kRound;
  const Floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  // The integer's low bits go to the exponent; those of kRound fall out at the top.
  const Ints scaled = AsInts(p) + (AsInts(shifted) << 23);
  return AsFloats(scaled & in_range);
}

STAFFEL_INLINE Floats Max(Floats a, Floats b) {
  const Ints greater = a > b;
  return AsFloats((AsInts(a) & greater) | (AsInts(b) & ~greater));
}

float MaxOf(const float* row, int size) {
  const Floats lowest = Splat(-__builtin_inff());
  Floats best[4] = {lowest, lowest, lowest, lowest};
  Ints nan = {};
  int i = 0;
  for (; i + 4 * kWidth <= size; i += 4 * kWidth) {
    for (int r = 0; r < 4; ++r) {
      const Floats v = Load(row + i + r * kWidth);
      nan |= v != v;
      best[r] = Max(v, best[r]);
    }
  }
  float lanes[kWidth];
  Store(lanes, Max(Max(best[0], best[1]), Max(best[2], best[3])));
  float result = lanes[0];
  for (int lane = 1; lane < kWidth; ++lane) result = lanes[lane] > result ? lanes[lane] : result;
  bool tail_nan = false;
  for (; i < size; ++i) {
    tail_nan |= row[i] != row[i];
    result = row[i] > result ? row[i] : result;
  }
  return tail_nan || Any(nan) ? __builtin_nanf("") : result;
}

template <class Match, class MatchOne>
STAFFEL_INLINE int FindFirst(const float* row, int begin, int size, Match match,
                             MatchOne match_one) {
  int i = begin;
  for (; i + 2 * kWidth <= size; i += 2 * kWidth) {
    if (Any(match(Load(row + i)) | match(Load(row + i + kWidth)))) break;
  }
  while (i < size && !match_one(row[i])) ++i;
  return i;
}

int FindEqual(const float* row, int begin, int size, float value) {
  const Floats v = Splat(value);
  return FindFirst(
      row, begin, size, [=](Floats x) __attribute__((always_inline)) { return x == v; },
      [=](float x) { return x == value; });
}

int FindGreater(const float* row, int begin, int size, float value) {
  const Floats v = Splat(value);
  return FindFirst(
      row, begin, size, [=](Floats x) __attribute__((always_inline)) { return x > v; },
      [=](float x) { return x > value; });
}

// exp((x - max) * scale) of one register, 0 below `min`.
STAFFEL_INLINE Floats Weight(const float* row, float max, float scale, Floats min) {
  const Floats w = Exp((Load(row) - max) * scale);
  return AsFloats(AsInts(w) & (w >= min));
}

// The last elements of a row, filled up to 16 lanes with -infinity, whose weight is 0.
STAFFEL_INLINE void LoadTail(const float* row, int count, float* lanes) {
  for (int i = 0; i < kLanes; ++i) lanes[i] = i < count ? row[i] : -__builtin_inff();
}

double SumExpOf(const float* row, int size, float max, float scale, float min, double* block_sums) {
  const Floats min_weight = Splat(min);
  double total = 0;
  for (int block = 0; block < size; block += kRowBlock) {
    const int end = block + kRowBlock < size ? block + kRowBlock : size;
    Floats sums[kRegisters] = {};
    int i = block;
    for (; i + kLanes <= end; i += kLanes) {
      for (int r = 0; r < kRegisters; ++r) {
        sums[r] += Weight(row + i + r * kWidth, max, scale, min_weight);
      }
    }
    if (i < end) {
      float tail[kLanes];
      LoadTail(row + i, end - i, tail);
      for (int r = 0; r < kRegisters; ++r) {
        sums[r] += Weight(tail + r * kWidth, max, scale, min_weight);
      }
    }
    const double sum = SumLanes(sums);
    if (block_sums != nullptr) block_sums[block / kRowBlock] = sum;
    total += sum;
  }
  return total;
}

void ExpWeightsOf(const float* row, int size, float max, float scale, float min, float* weights) {
  const Floats min_weight = Splat(min);
  int i = 0;
  for (; i + kWidth <= size; i += kWidth) {
    Store(weights + i, Weight(row + i, max, scale, min_weight));
  }
  if (i < size) {
    float tail[kLanes];
    LoadTail(row + i, size - i, tail);
    Store(tail, Weight(tail, max, scale, min_weight));
    for (int j = 0; i + j < size; ++j) weights[i + j] = tail[j];
  }
}

constexpr RowKernels Kernels(const char* name) {
  return {name, MaxOf, FindEqual, FindGreater, SumExpOf, ExpWeightsOf};
}

}  // namespace
}  // namespace staffel
