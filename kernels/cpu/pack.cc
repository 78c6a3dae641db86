// Stored block layouts follow the GGUF specification and the structs it names (block_q4_0 ..
// block_q6_K). Everything is dword arithmetic: an operand dword of a row is 4 consecutive k.
#define STAFFEL_CPU_LEVEL common

#include "kernels/cpu/pack.h"

#include <cstring>

#include "kernels/cpu/layout.h"

namespace staffel::kernels {
namespace {

using namespace common;  // NOLINT(google-build-using-namespace): this file is that level

uint32_t Load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
void Store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

constexpr uint32_t kLow4 = 0x0f0f0f0f;
constexpr int kLine = 64;  // bytes of an operand of 16 rows

// Nibble bit c to bit 0 of byte c.
uint32_t SpreadNibble(uint32_t nibble) { return nibble * 0x00204081u & 0x01010101u; }

// Byte c of the result: bits 4j + c of `bits` at bit j.
uint32_t TransposeBits(uint32_t bits) {
  uint32_t v = 0;
  for (int j = 0; j < 8; j++) v |= SpreadNibble(bits >> 4 * j & 15) << j;
  return v;
}

// One block of 32 of the simple types into block `b` of row `row`; tile as told in layout.h.
template <Format F>
void PackBlock32(const uint8_t* source, int b, int row, uint8_t* tile) {
  constexpr FormatInfo info = InfoOf(F);
  uint8_t* codes = tile + BlockOffset(F, b) + 4 * row;
  uint8_t* scale = tile + 32 * b + 2 * row;
  std::memcpy(scale, source, 2);
  source += 2;
  if (info.mins) {
    std::memcpy(scale + 64, source, 2);
    source += 2;
  }
  if (info.high_bytes != 0) {
    Store32(codes + info.code_bytes, TransposeBits(Load32(source)));
    source += 4;
  }
  if (F == kQ8_0) {
    for (int j = 0; j < 8; j++) Store32(codes + kLine * j, Load32(source + 4 * j) ^ 0x80808080u);
  } else {
    for (int i = 0; i < 4; i++) Store32(codes + kLine * i, Load32(source + 4 * i));
  }
}

// 6-bit values of the K types: 8 scales and 8 mins from 12 bytes.
void UnpackSixBit(const uint8_t* c, uint8_t values[16]) {
  for (int j = 0; j < 4; j++) {
    values[j] = c[j] & 63;
    values[8 + j] = c[j + 4] & 63;
    values[4 + j] = static_cast<uint8_t>((c[j + 8] & 15) | c[j] >> 6 << 4);
    values[12 + j] = static_cast<uint8_t>(c[j + 8] >> 4 | c[j + 4] >> 6 << 4);
  }
}

void PutSixBit(const uint8_t values[16], int row, uint8_t* tile) {
  for (int j = 0; j < 8; j++) {  // value 16 j + row shares a nibble byte with 16 (j + 8) + row
    tile[16 * j + row] = static_cast<uint8_t>((values[j] & 15) | (values[j + 8] & 15) << 4);
  }
  for (int j = 0; j < 4; j++) {
    uint32_t pairs = 0;
    for (int i = 0; i < 4; i++) pairs |= static_cast<uint32_t>(values[j + 4 * i] >> 4) << 2 * i;
    tile[128 + 16 * j + row] = static_cast<uint8_t>(pairs);
  }
}

template <Format F>
void PackQ45K(const uint8_t* source, int row, uint8_t* tile) {
  constexpr FormatInfo info = InfoOf(F);
  const uint8_t* bits = source + 16;  // Q5_K: one byte a k, one bit a block
  const uint8_t* q = F == kQ5_K ? source + 48 : bits;
  for (int b = 0; b < 8; b += 2) {  // blocks b and b + 1: low and high nibbles of the same bytes
    uint8_t* even = tile + BlockOffset(F, b) + 4 * row;
    uint8_t* odd = tile + BlockOffset(F, b + 1) + 4 * row;
    for (int i = 0; i < 4; i++) {
      const uint32_t v = Load32(q + 16 * b + 4 * i), w = Load32(q + 16 * b + 16 + 4 * i);
      Store32(even + kLine * i, (v & kLow4) | (w & kLow4) << 4);
      Store32(odd + kLine * i, (v >> 4 & kLow4) | (w & ~kLow4));
    }
  }
  if (F == kQ5_K) {
    for (int b = 0; b < 8; b++) {
      uint32_t v = 0;
      for (int j = 0; j < 8; j++) v |= (Load32(bits + 4 * j) >> b & 0x01010101u) << j;
      Store32(tile + BlockOffset(F, b) + info.code_bytes + 4 * row, v);
    }
  }
  uint8_t values[16];
  UnpackSixBit(source + 4, values);
  PutSixBit(values, row, tile);
  std::memcpy(tile + 192 + 2 * row, source, 2);
  std::memcpy(tile + 224 + 2 * row, source + 2, 2);
}

void PackQ6K(const uint8_t* source, int row, uint8_t* tile) {
  constexpr FormatInfo info = InfoOf(kQ6_K);
  for (int b = 0; b < 8; b++) {
    const int half = b / 4, quarter = b % 4;
    const uint8_t* low = source + 64 * half + 32 * (quarter % 2);
    const uint8_t* pairs = source + 128 + 32 * half;
    uint8_t* codes = tile + BlockOffset(kQ6_K, b) + 4 * row;
    uint8_t* high = codes + info.code_bytes;
    const int shift = quarter >= 2 ? 4 : 0;
    for (int i = 0; i < 4; i++) {
      const uint32_t v = Load32(low + 4 * i) >> shift & kLow4;
      const uint32_t w = Load32(low + 16 + 4 * i) >> shift & kLow4;
      Store32(codes + kLine * i, v | w << 4);
    }
    for (int j = 0; j < 8; j += 4) {
      uint32_t v = 0;
      for (int i = 0; i < 4; i++) {
        v |= (Load32(pairs + 4 * (j + i)) >> 2 * quarter & 0x03030303u) << 2 * i;
      }
      Store32(high + kLine * (j / 4), v);
    }
  }
  for (int j = 0; j < 16; j++) tile[16 * j + row] = source[192 + j];
  std::memcpy(tile + 256 + 2 * row, source + 208, 2);
}

// `count` <= 64 floats of a row, `F` elements.
template <Format F>
void PackFloats(const uint8_t* source, int count, int row, uint8_t* tile) {
  constexpr int kBytes = InfoOf(F).block_bytes;
  for (int k = 0; k < count; k++) {
    uint8_t* to = F == kBF16 ? tile + (k / 2) * kLine + 4 * row + 2 * (k % 2)
                             : tile + (k * kGroup + row) * kBytes;
    std::memcpy(to, source + kBytes * k, kBytes);
  }
}

// Columns [k0, k0 + count) of one stored row (count a whole number of blocks, at most a tile).
void PackRowTile(Format f, const uint8_t* row_bytes, int k0, int count, int row, uint8_t* tile) {
  const FormatInfo info = InfoOf(f);
  const uint8_t* source = row_bytes + int64_t{k0} / info.block_k * info.block_bytes;
  const auto blocks = [&](auto pack) {
    for (int b = 0; b < count / 32; b++) pack(source + b * info.block_bytes, b, row, tile);
  };
  switch (f) {
    case kQ4_0:
      return blocks(PackBlock32<kQ4_0>);
    case kQ4_1:
      return blocks(PackBlock32<kQ4_1>);
    case kQ5_0:
      return blocks(PackBlock32<kQ5_0>);
    case kQ5_1:
      return blocks(PackBlock32<kQ5_1>);
    case kQ8_0:
      return blocks(PackBlock32<kQ8_0>);
    case kQ4_K:
      return PackQ45K<kQ4_K>(source, row, tile);
    case kQ5_K:
      return PackQ45K<kQ5_K>(source, row, tile);
    case kQ6_K:
      return PackQ6K(source, row, tile);
    case kF16:
      return PackFloats<kF16>(source, count, row, tile);
    case kBF16:
      return PackFloats<kBF16>(source, count, row, tile);
    case kF32:
      return PackFloats<kF32>(source, count, row, tile);
  }
}

float FloatOfBits(uint32_t bits) {
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}
uint32_t Load16(const uint8_t* p) { return uint32_t{p[0]} | uint32_t{p[1]} << 8; }
float HalfToFloat(uint32_t h) {
  const uint32_t sign = (h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 0) {  // subnormal: fraction * 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return FloatOfBits(sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13);
}
float LoadHalf(const uint8_t* p) { return HalfToFloat(Load16(p)); }

// Scale and min of each block of 16 k of a row in a tile: weight = scale * code + min.
struct RowScales {
  float scale[16], min[16];
};

RowScales ReadRowScales(Format f, const uint8_t* tile, int row) {
  const FormatInfo info = InfoOf(f);
  RowScales r;
  for (int h = 0; h < info.tile_k / 16; h++) {
    const int b = h / 2;
    float min = 0;
    if (info.tile_k == 64) {
      r.scale[h] = LoadHalf(tile + 32 * b + 2 * row);
      if (info.mins) min = LoadHalf(tile + 64 + 32 * b + 2 * row);
    } else if (f == kQ6_K) {
      r.scale[h] = LoadHalf(tile + 256 + 2 * row) *
                   static_cast<float>(static_cast<int8_t>(tile[16 * h + row]));
    } else {
      const uint32_t nibbles = tile[16 * b + row], pairs = tile[128 + 16 * (b % 4) + row];
      const uint32_t scale = (nibbles & 15) | (pairs >> 2 * (b / 4) & 3) << 4;
      const uint32_t minimum = nibbles >> 4 | (pairs >> (4 + 2 * (b / 4)) & 3) << 4;
      r.scale[h] = LoadHalf(tile + 192 + 2 * row) * static_cast<float>(scale);
      min = -LoadHalf(tile + 224 + 2 * row) * static_cast<float>(minimum);
    }
    if (info.zero_point_log2 >= 0) {
      min = -r.scale[h] * static_cast<float>(1 << info.zero_point_log2);
    }
    r.min[h] = min;
  }
  return r;
}

// The 4 codes of operand j of block b in a row, one a byte.
uint32_t ReadCodes(Format f, const uint8_t* tile, int b, int j, int row) {
  const FormatInfo info = InfoOf(f);
  const uint8_t* codes = tile + BlockOffset(f, b) + 4 * row;
  if (f == kQ8_0) return Load32(codes + kLine * j);
  const uint8_t* high = codes + info.code_bytes;
  uint32_t v = Load32(codes + kLine * (j % 4)) >> (j >= 4 ? 4 : 0) & kLow4;
  if (info.high_bytes == 64) v |= (Load32(high) >> j & 0x01010101u) << 4;
  if (info.high_bytes == 128) {
    v |= (Load32(high + kLine * (j / 4)) >> 2 * (j % 4) & 0x03030303u) << 4;
  }
  return v;
}

// The first `count` weights of a row in a tile, times `scale`.
void UnpackRowTile(Format f, const uint8_t* tile, int row, int count, float scale, float* out) {
  const FormatInfo info = InfoOf(f);
  if (!info.quantised) {
    for (int k = 0; k < count; k++) {
      const uint8_t* at = tile + (k * kGroup + row) * info.block_bytes;
      float v;
      if (f == kF32) {
        v = FloatOfBits(Load32(at));
      } else if (f == kF16) {
        v = LoadHalf(at);
      } else {
        v = FloatOfBits(Load16(tile + (k / 2) * kLine + 4 * row + 2 * (k % 2)) << 16);
      }
      out[k] = v * scale;
    }
    return;
  }
  const RowScales scales = ReadRowScales(f, tile, row);
  for (int k = 0; k < count; k += 4) {
    const uint32_t codes = ReadCodes(f, tile, k / 32, k % 32 / 4, row);
    for (int c = 0; c < 4; c++) {
      const float code = static_cast<float>(codes >> 8 * c & 255);
      out[k + c] = (scales.scale[k / 16] * code + scales.min[k / 16]) * scale;
    }
  }
}

}  // namespace

void PackGroups(const WeightPart& part, const PackedMatrix& matrix, int group_begin,
                int group_end) {
  const auto f = static_cast<Format>(part.type);
  const int tile_k = InfoOf(f).tile_k, tile_bytes = TileBytes(f);
  for (int g = group_begin; g < group_end; g++) {
    const int rows = Min(kGroup, part.rows - g * kGroup);
    uint8_t* tile = matrix.data + g * matrix.group_stride_bytes;
    for (int k = 0; k < part.cols; k += tile_k, tile += tile_bytes) {
      const int count = Min(tile_k, part.cols - k);
      std::memset(tile, 0, tile_bytes);
      for (int r = 0; r < rows; r++) {
        const uint8_t* row = part.bytes + (int64_t{g} * kGroup + r) * part.row_stride_bytes;
        PackRowTile(f, row, k, count, r, tile);
      }
    }
  }
}

void UnpackRow(const PackedMatrix& matrix, int row, float scale, float* out) {
  const auto f = static_cast<Format>(matrix.type);
  const uint8_t* tile = matrix.data + row / kGroup * matrix.group_stride_bytes;
  for (int k = 0; k < matrix.cols; k += InfoOf(f).tile_k, tile += TileBytes(f)) {
    UnpackRowTile(f, tile, row % kGroup, Min(InfoOf(f).tile_k, matrix.cols - k), scale, out + k);
  }
}

// Through a tile of one row: there is one definition of every format.
void DecodeRow(const WeightPart& part, int row, float scale, float* out) {
  const auto f = static_cast<Format>(part.type);
  const int tile_k = InfoOf(f).tile_k;
  alignas(64) uint8_t tile[4096];
  const uint8_t* source = part.bytes + row * part.row_stride_bytes;
  for (int k = 0; k < part.cols; k += tile_k) {
    const int count = Min(tile_k, part.cols - k);
    PackRowTile(f, source, k, count, 0, tile);
    UnpackRowTile(f, tile, 0, count, scale, out + k);
  }
}

}  // namespace staffel::kernels
