// Layouts of packed weights and activations; compiled once per level in that level's namespace
// (STAFFEL_CPU_LEVEL), never included elsewhere.
//
// A group (16 outputs) is a run of tiles of 64 k, or 256 k for the K types. A tile of quantised
// weights is one linear stream:
//   [scales][mins][block 0: codes, high bits][block 1: codes, high bits]..   block = 16 rows x 32 k
//   codes   4 lines of 64 B: byte 4*row+c of line i = code(row, 4i+c) | code(row, 16+4i+c) << 4
//           (8 lines, one per operand, for Q8_0: the stored int8 with its sign bit flipped)
//   high    Q5: bit j of byte 4*row+c belongs to operand j; Q6: bit pair j & 3 of line j / 4
//   scales  [block][16 rows] f16, mins the same; K types: 16 values x 16 rows of 6 bits as 128 B of
//           nibbles and 64 B of bit pairs, then d and dmin [16 rows] f16; Q6_K: [16][16 rows] int8,
//           then d
// Everything is read in this order: the hardware prefetcher follows only streams that ascend.
// Operand j of a block is 16 rows x 4 k, k = 4j..4j+3: 64 unsigned bytes, one dword a row, as the
// u8 x s8 dot instructions take them. value = scale * (code - zero_point) + min.
// Float tiles: F32 and F16 [64 k][16 rows]; BF16 [32 k pairs][16 rows][2].
#pragma once

#include "kernels/api/cpu_kernels.h"

// Kernel bodies are one function each, whatever the compiler thinks of its size. Under sanitizers
// such functions take minutes to compile, and speed does not matter.
#ifdef STAFFEL_SANITIZED
#define STAFFEL_INLINE inline
#define STAFFEL_INLINE_LAMBDA
#define STAFFEL_UNROLL(count)
#else
#define STAFFEL_INLINE inline __attribute__((always_inline))
#define STAFFEL_INLINE_LAMBDA __attribute__((always_inline))
#define STAFFEL_PRAGMA(text) _Pragma(#text)
#ifdef __clang__
#define STAFFEL_UNROLL(count) STAFFEL_PRAGMA(unroll count)
#else
#define STAFFEL_UNROLL(count) STAFFEL_PRAGMA(GCC unroll count)
#endif
#endif

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// Stored types by their GGUF numbers.
enum Format : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct FormatInfo {
  int tile_k;           // k of a tile
  int block_k;          // stored elements that share a block
  int block_bytes;      // stored
  int code_bytes;       // per 16 x 32 block; of the whole tile for floats
  int high_bytes;       // per 16 x 32 block
  int scale_bytes;      // scales and mins of a tile
  int zero_point_log2;  // -1: none
  bool mins;
  bool quantised;
};

STAFFEL_INLINE constexpr FormatInfo InfoOf(Format f) {
  switch (f) {
    case kQ4_0:
      return {64, 32, 18, 256, 0, 64, 3, false, true};
    case kQ4_1:
      return {64, 32, 20, 256, 0, 128, -1, true, true};
    case kQ5_0:
      return {64, 32, 22, 256, 64, 64, 4, false, true};
    case kQ5_1:
      return {64, 32, 24, 256, 64, 128, -1, true, true};
    case kQ8_0:
      return {64, 32, 34, 512, 0, 64, 7, false, true};
    case kQ4_K:
      return {256, 256, 144, 256, 0, 256, -1, true, true};
    case kQ5_K:
      return {256, 256, 176, 256, 64, 256, -1, true, true};
    case kQ6_K:
      return {256, 256, 210, 256, 128, 288 + 32, 5, false, true};
    case kF16:
      return {64, 1, 2, 2048, 0, 0, -1, false, false};
    case kBF16:
      return {64, 1, 2, 2048, 0, 0, -1, false, false};
    default:
      return {64, 1, 4, 4096, 0, 0, -1, false, false};
  }
}
STAFFEL_INLINE constexpr int TileBytes(Format f) {
  const FormatInfo info = InfoOf(f);
  if (!info.quantised) return info.code_bytes;
  return info.scale_bytes + info.tile_k / 32 * (info.code_bytes + info.high_bytes);
}
// Where the codes of block `b` begin in a tile; its high bits follow them.
STAFFEL_INLINE constexpr int BlockOffset(Format f, int b) {
  const FormatInfo info = InfoOf(f);
  return info.scale_bytes + b * (info.code_bytes + info.high_bytes);
}
STAFFEL_INLINE constexpr int MaxCode(Format f) {
  if (f == kQ8_0) return 255;
  return InfoOf(f).high_bytes == 128 ? 63 : InfoOf(f).high_bytes == 64 ? 31 : 15;
}
STAFFEL_INLINE constexpr int64_t TilesOfRow(Format f, int cols) {
  return (cols + InfoOf(f).tile_k - 1) / InfoOf(f).tile_k;
}

STAFFEL_INLINE int Min(int a, int b) { return a < b ? a : b; }
STAFFEL_INLINE int Max(int a, int b) { return a > b ? a : b; }

// Columns of an activation row with the padding that the tiles of the weights need.
STAFFEL_INLINE constexpr int PaddedCols(int cols) { return (cols + 63) / 64 * 64; }

// Planes of int8 codes: a kInt16 code is 2^kPlaneBits * high + low, low in [-64, 63], |code| at
// most kInt16Max. Both planes stay inside +-127, as the byte products of every level need.
inline constexpr int kPlaneBits = 7, kInt16Max = (127 << kPlaneBits) + 63;
STAFFEL_INLINE constexpr int Planes(ActivationForm form) {
  return form == ActivationForm::kInt16 ? 2 : form == ActivationForm::kInt8 ? 1 : 0;
}

// Bytes from one tile of 8 activation rows to the next.
STAFFEL_INLINE constexpr int64_t ActivationTileBytes(ActivationForm form, int cols) {
  const int64_t k = PaddedCols(cols);
  switch (form) {
    // codes; then per 32 columns scale, scale * sum, -sum; per 16 columns -sum
    case ActivationForm::kInt8:
    case ActivationForm::kInt16:
      return kTileRows * (k * Planes(form) + k / 32 * (4 + 4 + 4 + 8));
    case ActivationForm::kBf16:
      return kTileRows * k * 2;
    default:
      return kTileRows * k * 4;
  }
}

// One tile of kInt8 or kInt16 activations. `rows` of its rows are interleaved, so that a dword
// broadcast is 4 k of one row:
//   q[k / 32][planes: high, low][8][rows][4], scale[k / 32][rows],
//   scaled_sum[k / 32][rows] = scale * sum(code), neg_sum32[k / 32][rows] = -sum(code),
//   neg_sum16[k / 16][rows]
struct CodeTile {
  int rows;
  int cols;  // padded
  int planes;
  uint8_t* q;
  float *scale, *scaled_sum;
  int32_t *neg_sum32, *neg_sum16;
};

STAFFEL_INLINE int TileRowCount(int rows, int tile) {
  return Min(kTileRows, rows - tile * kTileRows);
}
STAFFEL_INLINE uint8_t* TileData(const Activations& a, int tile) {
  return a.data + tile * ActivationTileBytes(a.form, a.cols);
}
STAFFEL_INLINE CodeTile MakeCodeTile(uint8_t* data, int planes, int rows, int padded_cols) {
  CodeTile t;
  t.rows = rows;
  t.cols = padded_cols;
  t.planes = planes;
  t.q = data;
  t.scale = reinterpret_cast<float*>(data + int64_t{rows} * padded_cols * planes);
  const int64_t blocks = int64_t{padded_cols} / 32 * rows;
  t.scaled_sum = t.scale + blocks;
  t.neg_sum32 = reinterpret_cast<int32_t*>(t.scaled_sum + blocks);
  t.neg_sum16 = t.neg_sum32 + blocks;
  return t;
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
