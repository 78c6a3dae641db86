// Vector vocabulary in portable C++ (vectors of 4 as GCC and Clang lower them for any machine). The
// kernel bodies are written once against these names; each simd_*.h defines all of them:
//   kLanes         lanes of a vector: a group of 16 outputs is kParts = 16 / kLanes parts
//   kRowsPerPass   activation rows whose sums fit the registers
//   kSignedDot     DotRows takes codes up to 255 as signed bytes with a flipped sign bit, and gives
//                  their signed product: there is no zero point to take off
//   DotRows<kMaxCode, MT, R>(w, count, q, dot)   dot[r] += w[j] . q[j][r] for j < count, r < R,
//   where
//                  q[j] are the 4 bytes of MT rows and no code is above kMaxCode
//   kBf16Products  DotPairs is one instruction on bf16 inputs
// F32: floats; I32: int32 lanes; Bytes: 4 bytes (or a pair of bf16) in each lane.
#pragma once

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr int kLanes = 4;  // what SSE2, which every x86-64 has, holds
inline constexpr int kRowsPerPass = 1;
inline constexpr bool kSignedDot = false;
inline constexpr bool kBf16Products = false;

typedef float F32 __attribute__((vector_size(16)));
typedef int32_t I32 __attribute__((vector_size(16)));
typedef uint32_t Bytes __attribute__((vector_size(16)));

STAFFEL_INLINE F32 AsFloats(Bytes v) { return (F32)v; }
STAFFEL_INLINE Bytes AsBits(F32 v) { return (Bytes)v; }
STAFFEL_INLINE F32 Select(I32 mask, F32 a, F32 b) { return mask ? a : b; }

STAFFEL_INLINE F32 Set(float x) { return F32{x, x, x, x}; }
STAFFEL_INLINE F32 Zero() { return Set(0); }
STAFFEL_INLINE F32 Load(const float* p) {
  F32 v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
STAFFEL_INLINE void Store(float* p, F32 v) { __builtin_memcpy(p, &v, sizeof v); }
// The first n lanes; the others are 0 and their memory is not touched.
STAFFEL_INLINE F32 LoadFirst(const float* p, int n) {
  F32 v = Zero();
  for (int i = 0; i < n; i++) v[i] = p[i];
  return v;
}
STAFFEL_INLINE void StoreFirst(float* p, int n, F32 v) {
  for (int i = 0; i < n; i++) p[i] = v[i];
}
STAFFEL_INLINE F32 Add(F32 a, F32 b) { return a + b; }
STAFFEL_INLINE F32 Sub(F32 a, F32 b) { return a - b; }
STAFFEL_INLINE F32 Mul(F32 a, F32 b) { return a * b; }
STAFFEL_INLINE F32 Div(F32 a, F32 b) { return a / b; }
STAFFEL_INLINE F32 Fma(F32 a, F32 b, F32 c) { return a * b + c; }
// The second where either is NaN.
STAFFEL_INLINE F32 MaxF(F32 a, F32 b) { return Select(a > b, a, b); }
STAFFEL_INLINE F32 MinF(F32 a, F32 b) { return Select(a < b, a, b); }
STAFFEL_INLINE F32 AbsF(F32 a) { return AsFloats(AsBits(a) & 0x7fffffffu); }
STAFFEL_INLINE float ReduceAdd(F32 a) { return (a[0] + a[2]) + (a[1] + a[3]); }
STAFFEL_INLINE float ReduceMax(F32 a) {
  const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
  return x > y ? x : y;
}
// Bit i: a > b (== b) in lane i; false for NaN.
STAFFEL_INLINE uint32_t LaneBits(I32 mask) {
  uint32_t m = 0;
  for (int i = 0; i < kLanes; i++) m |= (mask[i] != 0 ? 1u : 0u) << i;
  return m;
}
STAFFEL_INLINE uint32_t GreaterMask(F32 a, F32 b) { return LaneBits(a > b); }
STAFFEL_INLINE uint32_t EqualMask(F32 a, F32 b) { return LaneBits(a == b); }
// v in lanes [begin, end), other elsewhere; 0 <= begin, end <= kLanes.
STAFFEL_INLINE F32 KeepLanes(F32 v, int begin, int end, F32 other) {
  const I32 lane = {0, 1, 2, 3};
  return Select((lane >= begin) & (lane < end), v, other);
}
STAFFEL_INLINE float HalfToFloat(uint32_t h) {
  const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 0) {  // subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return __builtin_bit_cast(float,
                            sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
// kLanes stored halves, unsigned bytes, signed bytes.
STAFFEL_INLINE F32 LoadF16(const uint8_t* p) {
  F32 v;
  for (int i = 0; i < kLanes; i++) {
    v[i] = HalfToFloat(uint32_t{p[2 * i]} | uint32_t{p[2 * i + 1]} << 8);
  }
  return v;
}
STAFFEL_INLINE F32 LoadU8(const uint8_t* p) {
  return F32{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
             static_cast<float>(p[3])};
}
STAFFEL_INLINE F32 LoadS8(const uint8_t* p) {
  F32 v;
  for (int i = 0; i < kLanes; i++) v[i] = static_cast<float>(static_cast<int8_t>(p[i]));
  return v;
}
// To the nearest integer, ties to even; |v| < 2^22.
STAFFEL_INLINE F32 RoundF(F32 v) {
  const F32 magic = Set(12582912.0f);  // 1.5 * 2^23: the sum has no fraction bits
  return (v + magic) - magic;
}
// v * 2^n for integral n in [-126, 127] where the result is normal.
STAFFEL_INLINE F32 ScaleByPower(F32 v, F32 n) {
  return AsFloats(AsBits(v) + ((Bytes) __builtin_convertvector(n, I32) << 23));
}
// 0 where a < b, else v (also where a is NaN).
STAFFEL_INLINE F32 ZeroWhereLess(F32 v, F32 a, F32 b) { return Select(a < b, Zero(), v); }

STAFFEL_INLINE I32 SetI(int32_t x) { return I32{x, x, x, x}; }
// Nearest, ties to even; anything for values beyond int32 (and NaN).
STAFFEL_INLINE I32 RoundToInt(F32 v) {
  const F32 bounded = Select(AbsF(v) < Set(1e6f), v, Zero());
  return __builtin_convertvector(RoundF(bounded), I32);
}
STAFFEL_INLINE F32 ToFloat(I32 v) { return __builtin_convertvector(v, F32); }
STAFFEL_INLINE I32 AddI(I32 a, I32 b) { return a + b; }
STAFFEL_INLINE I32 SubI(I32 a, I32 b) { return a - b; }
// Shifts of lanes: left of any value, right with the sign.
template <int kBits>
STAFFEL_INLINE I32 ShlI(I32 a) {
  return a << kBits;
}
template <int kBits>
STAFFEL_INLINE I32 ShrI(I32 a) {
  return a >> kBits;
}
STAFFEL_INLINE int32_t ReduceAddI(I32 v) { return v[0] + v[1] + v[2] + v[3]; }
// kLanes bytes: the low byte of each lane.
STAFFEL_INLINE void StoreInt8(uint8_t* p, I32 v) {
  for (int i = 0; i < kLanes; i++) p[i] = static_cast<uint8_t>(v[i]);
}

// 4 * kLanes bytes.
STAFFEL_INLINE Bytes LoadBytes(const void* p) {
  Bytes v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
STAFFEL_INLINE void StoreBytes(void* p, Bytes v) { __builtin_memcpy(p, &v, sizeof v); }
STAFFEL_INLINE Bytes SetBytes(uint8_t x) {
  const uint32_t v = x * 0x01010101u;
  return Bytes{v, v, v, v};
}
STAFFEL_INLINE Bytes AndBytes(Bytes a, Bytes b) { return a & b; }
// a | (b & mask)
STAFFEL_INLINE Bytes OrMasked(Bytes a, Bytes b, Bytes mask) { return a | (b & mask); }
// Shifts within 16-bit halves of a lane.
template <int kBits>
STAFFEL_INLINE Bytes Shl16(Bytes v) {
  return v << kBits & (0xffffu >> kBits << kBits) * 0x10001u;
}
template <int kBits>
STAFFEL_INLINE Bytes Shr16(Bytes v) {
  return v >> kBits & (0xffffu >> kBits) * 0x10001u;
}
// 4 bytes into every lane.
STAFFEL_INLINE Bytes Broadcast4(const void* p) {
  uint32_t x;
  __builtin_memcpy(&x, p, 4);
  return Bytes{x, x, x, x};
}
// sum + the dot product of 4 unsigned (w) and 4 signed bytes (a) in each lane.
STAFFEL_INLINE I32 DotU8(I32 sum, Bytes w, Bytes a) {
  for (int shift = 0; shift < 32; shift += 8) {
    sum += (I32)(w >> shift & 255u) * ((I32)(a << (24 - shift)) >> 24);
  }
  return sum;
}
template <int kByte>
STAFFEL_INLINE F32 ByteToFloat(Bytes v) {
  return __builtin_convertvector((I32)(v >> 8 * kByte & 255u), F32);
}

// The two bf16 of each lane as floats; the lane with its second one zeroed.
STAFFEL_INLINE F32 PairLow(Bytes v) { return AsFloats(v << 16); }
STAFFEL_INLINE F32 PairHigh(Bytes v) { return AsFloats(v & 0xffff0000u); }
STAFFEL_INLINE Bytes ZeroPairHigh(Bytes v) { return v & 0xffffu; }
// kLanes bf16, nearest even.
STAFFEL_INLINE void StoreBf16(uint16_t* p, F32 v) {
  const Bytes bits = AsBits(v), rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  for (int i = 0; i < kLanes; i++) p[i] = static_cast<uint16_t>(rounded[i]);
}
STAFFEL_INLINE F32 LoadBf16(const uint16_t* p) {
  return AsFloats(Bytes{p[0], p[1], p[2], p[3]} << 16);
}
// sum + both products of the pairs in each lane.
STAFFEL_INLINE F32 DotPairs(F32 sum, Bytes a, Bytes b) {
  return Fma(PairHigh(a), PairHigh(b), Fma(PairLow(a), PairLow(b), sum));
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL

#include "kernels/cpu/dot_rows.h"
