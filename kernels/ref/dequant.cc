#include "kernels/ref/dequant.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace staffel::ref {
namespace {

uint16_t Bits16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
float Half(const uint8_t* p) { return HalfToFloat(Bits16(p)); }

// Blocks of 32 with 4-bit codes: element i < 16 is the low nibble of byte i, element i + 16 the
// high one. Q5 formats keep bit 4 of element i in bit i of a 32-bit word before the nibbles.
int Nibble(const uint8_t* codes, int i) { return i < 16 ? codes[i] & 15 : codes[i - 16] >> 4; }

void Q4_0(const uint8_t* p, float* out) {  // d, codes[16]
  for (int i = 0; i < 32; ++i) out[i] = Half(p) * static_cast<float>(Nibble(p + 2, i) - 8);
}
void Q4_1(const uint8_t* p, float* out) {  // d, m, codes[16]
  for (int i = 0; i < 32; ++i) {
    out[i] = Half(p) * static_cast<float>(Nibble(p + 4, i)) + Half(p + 2);
  }
}
int FiveBits(const uint8_t* high, int i) {  // high[4], codes[16]
  return Nibble(high + 4, i) | (high[i / 8] >> (i % 8) & 1) << 4;
}
void Q5_0(const uint8_t* p, float* out) {  // d, high[4], codes[16]
  for (int i = 0; i < 32; ++i) out[i] = Half(p) * static_cast<float>(FiveBits(p + 2, i) - 16);
}
void Q5_1(const uint8_t* p, float* out) {  // d, m, high[4], codes[16]
  for (int i = 0; i < 32; ++i) {
    out[i] = Half(p) * static_cast<float>(FiveBits(p + 4, i)) + Half(p + 2);
  }
}
void Q8_0(const uint8_t* p, float* out) {  // d, codes[32]
  for (int i = 0; i < 32; ++i) {
    out[i] = Half(p) * static_cast<float>(static_cast<int8_t>(p[2 + i]));
  }
}

// Scale and minimum j of 8, six bits each, packed into 12 bytes: 0..3 whole in bytes 0..3 (scales)
// and 4..7 (minima); of 4..7 the low four bits in bytes 8..11, the upper two atop the former.
int ScaleOf(const uint8_t* s, int j) {
  return j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
}
int MinOf(const uint8_t* s, int j) {
  return j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
}
// Eight groups of 32; groups 2j and 2j + 1 share 32 bytes as low and high nibbles.
void Q4_K(const uint8_t* p, float* out) {  // d, dmin, scales[12], codes[128]
  const float d = Half(p), d_min = Half(p + 2);
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32;
    const int code = p[16 + 32 * (j / 2) + i % 32] >> (4 * (j % 2)) & 15;
    out[i] = d * static_cast<float>(ScaleOf(p + 4, j)) * static_cast<float>(code) -
             d_min * static_cast<float>(MinOf(p + 4, j));
  }
}
void Q5_K(const uint8_t* p, float* out) {  // d, dmin, scales[12], high[32], codes[128]
  const float d = Half(p), d_min = Half(p + 2);
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32;
    const int code =
        (p[48 + 32 * (j / 2) + i % 32] >> (4 * (j % 2)) & 15) | (p[16 + i % 32] >> j & 1) << 4;
    out[i] = d * static_cast<float>(ScaleOf(p + 4, j)) * static_cast<float>(code) -
             d_min * static_cast<float>(MinOf(p + 4, j));
  }
}
// Two halves of 128, each four quarters of 32: nibbles of 64 bytes (quarters 0, 1 low; 2, 3 high),
// bit pairs of 32 bytes; a signed scale for every 16.
void Q6_K(const uint8_t* p, float* out) {  // low[128], high[64], scales[16], d
  const float d = Half(p + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, l = i % 32;
    const int low = p[64 * half + 32 * (quarter % 2) + l] >> (4 * (quarter / 2)) & 15;
    const int high = p[128 + 32 * half + l] >> (2 * quarter) & 3;
    out[i] = d * static_cast<float>(static_cast<int8_t>(p[192 + i / 16])) *
             static_cast<float>((low | high << 4) - 32);
  }
}

void DequantizeBlock(DType type, const uint8_t* p, float* out) {
  switch (type) {
    case DType::kF32:
      std::memcpy(out, p, sizeof *out);
      return;
    case DType::kF16:
      *out = Half(p);
      return;
    case DType::kBF16:
      *out = Bfloat16ToFloat(Bits16(p));
      return;
    case DType::kQ4_0:
      return Q4_0(p, out);
    case DType::kQ4_1:
      return Q4_1(p, out);
    case DType::kQ5_0:
      return Q5_0(p, out);
    case DType::kQ5_1:
      return Q5_1(p, out);
    case DType::kQ8_0:
      return Q8_0(p, out);
    case DType::kQ4_K:
      return Q4_K(p, out);
    case DType::kQ5_K:
      return Q5_K(p, out);
    case DType::kQ6_K:
      return Q6_K(p, out);
  }
}

}  // namespace

float HalfToFloat(uint16_t bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  float magnitude;
  if (exponent == 31) {
    magnitude = mantissa == 0 ? INFINITY : NAN;
  } else if (exponent == 0) {
    magnitude = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    magnitude = std::bit_cast<float>(static_cast<uint32_t>(exponent + 112) << 23 |
                                     static_cast<uint32_t>(mantissa) << 13);
  }
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float Bfloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void Dequantize(DType type, const uint8_t* bytes, int64_t count, float* out) {
  const DTypeInfo& info = InfoOf(type);
  for (; count > 0; count -= info.block_elements) {
    DequantizeBlock(type, bytes, out);
    bytes += info.block_bytes;
    out += info.block_elements;
  }
}

}  // namespace staffel::ref
