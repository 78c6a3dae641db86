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
// Sums are kept in float within such a block and in double across: the error stays below 1e-6.
constexpr int kSumBlock = 1024;

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

// One pass over 16 lanes at a time; the last group is filled up with -infinity. `weights` may be
// null.
STAFFEL_INLINE double ExpSum(const float* row, int size, float max, float scale, float min,
                             float* weights) {
  double total = 0;
  for (int block = 0; block < size; block += kSumBlock) {
    const int end = block + kSumBlock < size ? block + kSumBlock : size;
    Floats sums[kRegisters] = {};
    for (int i = block; i < end; i += kLanes) {
      float part[kLanes];
      const float* in = row + i;
      float* out = weights == nullptr ? nullptr : weights + i;
      const int count = end - i < kLanes ? end - i : kLanes;
      if (count < kLanes) {
        for (int j = 0; j < kLanes; ++j) part[j] = j < count ? in[j] : -__builtin_inff();
        in = part;
        out = part;
      }
      for (int r = 0; r < kRegisters; ++r) {
        Floats w = Exp((Load(in + r * kWidth) - max) * scale);
        if (weights != nullptr) {
          w = AsFloats(AsInts(w) & (w >= Splat(min)));
          Store(out + r * kWidth, w);
        }
        sums[r] += w;
      }
      if (weights != nullptr && count < kLanes) {
        for (int j = 0; j < count; ++j) weights[i + j] = part[j];
      }
    }
    total += SumLanes(sums);
  }
  return total;
}

double SumExpOf(const float* row, int size, float max, float scale) {
  return ExpSum(row, size, max, scale, 0, nullptr);
}

double ExpWeightsOf(const float* row, int size, float max, float scale, float min, float* weights) {
  return ExpSum(row, size, max, scale, min, weights);
}

constexpr RowKernels Kernels(const char* name) {
  return {name, MaxOf, FindEqual, FindGreater, SumExpOf, ExpWeightsOf};
}

}  // namespace
}  // namespace staffel
