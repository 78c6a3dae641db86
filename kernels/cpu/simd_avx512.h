// Vector vocabulary on AVX-512 (F, BW, DQ, VL, VNNI; BF16 where __AVX512BF16__): 16 lanes, so one
// part covers a group. See simd_scalar.h for what each function means.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr int kLanes = 16;
inline constexpr int kRowsPerPass = 8;
inline constexpr bool kSignedDot = false;
#ifdef __AVX512BF16__
inline constexpr bool kBf16Products = true;
#else
inline constexpr bool kBf16Products = false;
#endif

using F32 = __m512;
using I32 = __m512i;
using Bytes = __m512i;

STAFFEL_INLINE __mmask16 FirstLanes(int n) { return static_cast<__mmask16>((1u << n) - 1); }

STAFFEL_INLINE F32 Zero() { return _mm512_setzero_ps(); }
STAFFEL_INLINE F32 Set(float x) { return _mm512_set1_ps(x); }
STAFFEL_INLINE F32 Load(const float* p) { return _mm512_loadu_ps(p); }
STAFFEL_INLINE F32 LoadFirst(const float* p, int n) {
  return _mm512_maskz_loadu_ps(FirstLanes(n), p);
}
STAFFEL_INLINE void Store(float* p, F32 v) { _mm512_storeu_ps(p, v); }
STAFFEL_INLINE void StoreFirst(float* p, int n, F32 v) {
  _mm512_mask_storeu_ps(p, FirstLanes(n), v);
}
STAFFEL_INLINE F32 Add(F32 a, F32 b) { return _mm512_add_ps(a, b); }
STAFFEL_INLINE F32 Sub(F32 a, F32 b) { return _mm512_sub_ps(a, b); }
STAFFEL_INLINE F32 Mul(F32 a, F32 b) { return _mm512_mul_ps(a, b); }
STAFFEL_INLINE F32 Div(F32 a, F32 b) { return _mm512_div_ps(a, b); }
STAFFEL_INLINE F32 Fma(F32 a, F32 b, F32 c) { return _mm512_fmadd_ps(a, b, c); }
STAFFEL_INLINE F32 MaxF(F32 a, F32 b) { return _mm512_max_ps(a, b); }
STAFFEL_INLINE F32 MinF(F32 a, F32 b) { return _mm512_min_ps(a, b); }
STAFFEL_INLINE F32 AbsF(F32 a) { return _mm512_abs_ps(a); }
STAFFEL_INLINE float ReduceAdd(F32 a) { return _mm512_reduce_add_ps(a); }
STAFFEL_INLINE float ReduceMax(F32 a) { return _mm512_reduce_max_ps(a); }
STAFFEL_INLINE uint32_t GreaterMask(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
STAFFEL_INLINE uint32_t EqualMask(F32 a, F32 b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
STAFFEL_INLINE F32 KeepLanes(F32 v, int begin, int end, F32 other) {
  return _mm512_mask_mov_ps(other, FirstLanes(end) & static_cast<__mmask16>(~FirstLanes(begin)), v);
}
STAFFEL_INLINE F32 LoadF16(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
STAFFEL_INLINE F32 LoadU8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
STAFFEL_INLINE F32 LoadS8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
STAFFEL_INLINE F32 RoundF(F32 v) { return _mm512_roundscale_ps(v, 0); }
STAFFEL_INLINE F32 ScaleByPower(F32 v, F32 n) { return _mm512_scalef_ps(v, n); }
STAFFEL_INLINE F32 ZeroWhereLess(F32 v, F32 a, F32 b) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), v);
}

STAFFEL_INLINE I32 SetI(int32_t x) { return _mm512_set1_epi32(x); }
STAFFEL_INLINE I32 RoundToInt(F32 v) { return _mm512_cvtps_epi32(v); }
STAFFEL_INLINE F32 ToFloat(I32 v) { return _mm512_cvtepi32_ps(v); }
STAFFEL_INLINE I32 AddI(I32 a, I32 b) { return _mm512_add_epi32(a, b); }
STAFFEL_INLINE I32 SubI(I32 a, I32 b) { return _mm512_sub_epi32(a, b); }
template <int kBits>
STAFFEL_INLINE I32 ShlI(I32 a) {
  return _mm512_slli_epi32(a, kBits);
}
template <int kBits>
STAFFEL_INLINE I32 ShrI(I32 a) {
  return _mm512_srai_epi32(a, kBits);
}
STAFFEL_INLINE int32_t ReduceAddI(I32 v) { return _mm512_reduce_add_epi32(v); }
STAFFEL_INLINE void StoreInt8(uint8_t* p, I32 v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}

STAFFEL_INLINE Bytes LoadBytes(const void* p) { return _mm512_loadu_si512(p); }
STAFFEL_INLINE void StoreBytes(void* p, Bytes v) { _mm512_storeu_si512(p, v); }
STAFFEL_INLINE Bytes SetBytes(uint8_t x) { return _mm512_set1_epi8(static_cast<char>(x)); }
STAFFEL_INLINE Bytes AndBytes(Bytes a, Bytes b) { return _mm512_and_si512(a, b); }
STAFFEL_INLINE Bytes OrMasked(Bytes a, Bytes b, Bytes mask) {
  return _mm512_ternarylogic_epi32(a, b, mask, 0xF8);
}
template <int kBits>
STAFFEL_INLINE Bytes Shl16(Bytes v) {
  return _mm512_slli_epi16(v, kBits);
}
template <int kBits>
STAFFEL_INLINE Bytes Shr16(Bytes v) {
  return _mm512_srli_epi16(v, kBits);
}
STAFFEL_INLINE Bytes Broadcast4(const void* p) {
  int32_t x;
  __builtin_memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}
STAFFEL_INLINE I32 DotU8(I32 sum, Bytes w, Bytes a) { return _mm512_dpbusd_epi32(sum, w, a); }
template <int kByte>
STAFFEL_INLINE F32 ByteToFloat(Bytes v) {
  return _mm512_cvtepi32_ps(
      _mm512_and_si512(_mm512_srli_epi32(v, 8 * kByte), _mm512_set1_epi32(255)));
}

STAFFEL_INLINE F32 PairLow(Bytes v) { return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16)); }
STAFFEL_INLINE F32 PairHigh(Bytes v) {
  return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32(-65536)));
}
STAFFEL_INLINE Bytes ZeroPairHigh(Bytes v) {
  return _mm512_and_si512(v, _mm512_set1_epi32(0xffff));
}
STAFFEL_INLINE void StoreBf16(uint16_t* p, F32 v) {
#ifdef __AVX512BF16__
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
#else
  const __m512i bits = _mm512_castps_si512(v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16)));
#endif
}
STAFFEL_INLINE F32 LoadBf16(const uint16_t* p) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16));
}
STAFFEL_INLINE F32 DotPairs(F32 sum, Bytes a, Bytes b) {
#ifdef __AVX512BF16__
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#else
  return Fma(PairHigh(a), PairHigh(b), Fma(PairLow(a), PairLow(b), sum));
#endif
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL

#include "kernels/cpu/dot_rows.h"
