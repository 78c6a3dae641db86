// Vector vocabulary on AVX2 + FMA + F16C: 8 lanes, so a group is two parts. See simd_scalar.h for
// what each function means.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr int kLanes = 8;
inline constexpr int kRowsPerPass = 4;  // 4 sums, 4 products, weights and temporaries: 16 registers
inline constexpr bool kSignedDot = true;
inline constexpr bool kBf16Products = false;

using F32 = __m256;
using I32 = __m256i;
using Bytes = __m256i;

// All ones in the first n lanes.
STAFFEL_INLINE __m256i FirstLanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

STAFFEL_INLINE F32 Zero() { return _mm256_setzero_ps(); }
STAFFEL_INLINE F32 Set(float x) { return _mm256_set1_ps(x); }
STAFFEL_INLINE F32 Load(const float* p) { return _mm256_loadu_ps(p); }
STAFFEL_INLINE F32 LoadFirst(const float* p, int n) { return _mm256_maskload_ps(p, FirstLanes(n)); }
STAFFEL_INLINE void Store(float* p, F32 v) { _mm256_storeu_ps(p, v); }
STAFFEL_INLINE void StoreFirst(float* p, int n, F32 v) { _mm256_maskstore_ps(p, FirstLanes(n), v); }
STAFFEL_INLINE F32 Add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
STAFFEL_INLINE F32 Sub(F32 a, F32 b) { return _mm256_sub_ps(a, b); }
STAFFEL_INLINE F32 Mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
STAFFEL_INLINE F32 Div(F32 a, F32 b) { return _mm256_div_ps(a, b); }
STAFFEL_INLINE F32 Fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
STAFFEL_INLINE F32 MaxF(F32 a, F32 b) { return _mm256_max_ps(a, b); }
STAFFEL_INLINE F32 MinF(F32 a, F32 b) { return _mm256_min_ps(a, b); }
STAFFEL_INLINE F32 AbsF(F32 a) {
  return _mm256_and_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)));
}
STAFFEL_INLINE float ReduceAdd(F32 a) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
STAFFEL_INLINE float ReduceMax(F32 a) {
  __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  s = _mm_max_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
STAFFEL_INLINE uint32_t GreaterMask(F32 a, F32 b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GT_OQ)));
}
STAFFEL_INLINE uint32_t EqualMask(F32 a, F32 b) {
  return static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_EQ_OQ)));
}
STAFFEL_INLINE F32 KeepLanes(F32 v, int begin, int end, F32 other) {
  const __m256i keep = _mm256_andnot_si256(FirstLanes(begin), FirstLanes(end));
  return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(keep));
}
STAFFEL_INLINE F32 LoadF16(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
STAFFEL_INLINE F32 LoadU8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
STAFFEL_INLINE F32 LoadS8(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
STAFFEL_INLINE F32 RoundF(F32 v) {
  return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
STAFFEL_INLINE F32 ScaleByPower(F32 v, F32 n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(v), _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23)));
}
STAFFEL_INLINE F32 ZeroWhereLess(F32 v, F32 a, F32 b) {
  return _mm256_and_ps(v, _mm256_cmp_ps(a, b, _CMP_NLT_UQ));
}

STAFFEL_INLINE I32 SetI(int32_t x) { return _mm256_set1_epi32(x); }
STAFFEL_INLINE I32 RoundToInt(F32 v) { return _mm256_cvtps_epi32(v); }
STAFFEL_INLINE F32 ToFloat(I32 v) { return _mm256_cvtepi32_ps(v); }
STAFFEL_INLINE I32 AddI(I32 a, I32 b) { return _mm256_add_epi32(a, b); }
STAFFEL_INLINE I32 SubI(I32 a, I32 b) { return _mm256_sub_epi32(a, b); }
template <int kBits>
STAFFEL_INLINE I32 ShlI(I32 a) {
  return _mm256_slli_epi32(a, kBits);
}
template <int kBits>
STAFFEL_INLINE I32 ShrI(I32 a) {
  return _mm256_srai_epi32(a, kBits);
}
STAFFEL_INLINE int32_t ReduceAddI(I32 v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
STAFFEL_INLINE void StoreInt8(uint8_t* p, I32 v) {
  const __m128i low = _mm_set1_epi32(255);
  const __m128i w = _mm_packus_epi32(_mm_and_si128(_mm256_castsi256_si128(v), low),
                                     _mm_and_si128(_mm256_extracti128_si256(v, 1), low));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packus_epi16(w, w));
}

STAFFEL_INLINE Bytes LoadBytes(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
STAFFEL_INLINE void StoreBytes(void* p, Bytes v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
STAFFEL_INLINE Bytes SetBytes(uint8_t x) { return _mm256_set1_epi8(static_cast<char>(x)); }
STAFFEL_INLINE Bytes AndBytes(Bytes a, Bytes b) { return _mm256_and_si256(a, b); }
STAFFEL_INLINE Bytes OrMasked(Bytes a, Bytes b, Bytes mask) {
  return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}
template <int kBits>
STAFFEL_INLINE Bytes Shl16(Bytes v) {
  return _mm256_slli_epi16(v, kBits);
}
template <int kBits>
STAFFEL_INLINE Bytes Shr16(Bytes v) {
  return _mm256_srli_epi16(v, kBits);
}
STAFFEL_INLINE Bytes Broadcast4(const void* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}
// vpmaddubsw adds two products into 16 bits: at most 2 * code * 127 in size. As many of them as
// cannot pass 2^15 are added there before they are widened. Codes up to 255 are taken as signed
// bytes w: |w| * (a with the sign of w) is at most 2 * 128 * 127.
template <int kMaxCode, int MT, int R>
STAFFEL_INLINE void DotRows(const Bytes* w, int count, const uint8_t* q, I32* dot) {
  constexpr int kRun = kMaxCode <= 15 ? 8 : kMaxCode <= 31 ? 4 : kMaxCode <= 63 ? 2 : 1;
  const __m256i ones = _mm256_set1_epi16(1);
  STAFFEL_UNROLL(4)
  for (int j0 = 0; j0 < count; j0 += kRun) {
    __m256i sums[R];
    STAFFEL_UNROLL(8)
    for (int j = j0; j < j0 + kRun; j++) {
      Bytes code = w[j], sign = code;
      if constexpr (kMaxCode > 127) {
        sign = _mm256_xor_si256(code, SetBytes(0x80));
        code = _mm256_abs_epi8(sign);
      }
      STAFFEL_UNROLL(4)
      for (int r = 0; r < R; r++) {
        Bytes x = Broadcast4(q + (j * MT + r) * 4);
        if constexpr (kMaxCode > 127) x = _mm256_sign_epi8(x, sign);
        const __m256i products = _mm256_maddubs_epi16(code, x);
        sums[r] = j == j0 ? products : _mm256_add_epi16(sums[r], products);
      }
    }
    STAFFEL_UNROLL(4)
    for (int r = 0; r < R; r++) {
      dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(sums[r], ones));
    }
  }
}
template <int kByte>
STAFFEL_INLINE F32 ByteToFloat(Bytes v) {
  return _mm256_cvtepi32_ps(
      _mm256_and_si256(_mm256_srli_epi32(v, 8 * kByte), _mm256_set1_epi32(255)));
}

STAFFEL_INLINE F32 PairLow(Bytes v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
STAFFEL_INLINE F32 PairHigh(Bytes v) {
  return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(-65536)));
}
STAFFEL_INLINE Bytes ZeroPairHigh(Bytes v) {
  return _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
}
STAFFEL_INLINE void StoreBf16(uint16_t* p, F32 v) {
  const __m256i bits = _mm256_castps_si256(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm_packus_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)));
}
STAFFEL_INLINE F32 LoadBf16(const uint16_t* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(
      _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16));
}
STAFFEL_INLINE F32 DotPairs(F32 sum, Bytes a, Bytes b) {
  return Fma(PairHigh(a), PairHigh(b), Fma(PairLow(a), PairLow(b), sum));
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
