// One group of 16 outputs against one tile of up to 8 activation rows: all of k. Every number of
// rows takes the same float operations in the same order for a row, so its bits do not depend on
// the others:
//   codes: y = fma(float(dot) * activation scale, scale, y), then y = fma(min, scaled sum, y),
//   where
//          dot is an exact int32: of the high plane, shifted, plus that of the low plane
//   float: even and odd k (pairs for bf16) in two sums, added at the end; the hardware prefetcher
//   follows its plain stream best alone
#pragma once

#include "kernels/cpu/tile_decode.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// Prefetch distances in the weight stream; they run over the end of a group into the next one and
// the next matrix. The hardware prefetcher keeps up as long as the stream is read fast, that is
// with one row (two of the plain types); slower readers lose it, and prefetches by hand are worth
// more than any instruction. GB/s of Q4_1 / Q8_0 / Q4_K, one core of Zen 4 that reads 36:
//               hardware alone     these two       8 KiB to L1
//   1 row       34 / 34 / 32       23 / 24 / 26    26 / 25 / 24
//   4 rows      18 / 24 / 15       25 / 23 / 20    19 / 21 / 17
//   8 rows       9 / 16 /  8       13 / 23 / 11    12 / 16 / 11     (13, 23, 11: bound by compute)
inline constexpr int kFarBytes = 16384;  // to L2
inline constexpr int kNearBytes = 2048;  // to L1

// Lines [begin, end) of a tile, further on in the stream. Spread over the work: all lines of a K
// tile at once fill the miss buffers and stall the loads of this tile (8 rows: 6 against 11 GB/s).
template <Format F, int MT>
STAFFEL_INLINE void PrefetchLines(const uint8_t* tile, int begin, int end) {
  constexpr bool kPlain = InfoOf(F).tile_k == 64 && InfoOf(F).high_bytes == 0;
  if constexpr (MT > (kPlain ? 2 : 1)) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(tile);
    for (int i = begin; i < end; i++) {
      __builtin_prefetch(reinterpret_cast<const void*>(at + kFarBytes + 64 * i), 0, 2);
      __builtin_prefetch(reinterpret_cast<const void*>(at + kNearBytes + 64 * i), 0, 3);
    }
  }
}

// Rows [row, row + R) of a tile of MT rows, outputs of `part`, one weight tile at k0 (multiple of
// the tile). sums[r] is updated.
template <Format F, int MT, int kPlanes, int R>
STAFFEL_INLINE void CodeTiles(const uint8_t* tile, const CodeTile& a, int k0, int row, int part,
                              F32* sums) {
  constexpr FormatInfo info = InfoOf(F);
  constexpr int kBlocks = info.tile_k / 32, kPer = kScalesPerBlock<F>, kSteps = 8 / kPer;
  constexpr bool kZeroPoint = info.zero_point_log2 >= 0 && !(F == kQ8_0 && kSignedDot);
  const uint8_t* q = a.q + int64_t{k0} * kPlanes * MT + 4 * row;
  const int64_t block0 = int64_t{k0} / 32 * MT + row;
  const float* scale = a.scale + block0;
  const float* scaled_sum = a.scaled_sum + block0;
  const int32_t* neg_sum =
      kPer == 2 ? a.neg_sum16 + 2 * (block0 - row) + row : a.neg_sum32 + block0;
  const TileScales<F> scales(tile, part);
  STAFFEL_UNROLL(2)
  for (int b = 0; b < kBlocks; b++) {
    if (row == 0 && part == 0) {
      constexpr int kLines = TileBytes(F) / 64;
      PrefetchLines<F, MT>(tile, b * kLines / kBlocks, (b + 1) * kLines / kBlocks);
    }
    Bytes w[8];
    LoadOperands<F>(tile, b, part, w);
    STAFFEL_UNROLL(2)
    for (int h = 0; h < kPer; h++) {
      I32 dot[R];
      const int j = h * kSteps;
      const uint8_t* codes = q + (8 * kPlanes * b + j) * MT * 4;
      if constexpr (kPlanes == 2) {
        STAFFEL_UNROLL(8)
        for (int r = 0; r < R; r++) dot[r] = SetI(0);
        DotRows<MaxCode(F), MT, R>(w + j, kSteps, codes, dot);
        codes += 8 * MT * 4;
      }
      STAFFEL_UNROLL(8)
      for (int r = 0; r < R; r++) {
        I32 first = kPlanes == 2 ? ShlI<kPlaneBits>(dot[r]) : SetI(0);
        if constexpr (kZeroPoint) {
          const I32 zero_point =
              SetI(neg_sum[(kPer * b + h) * MT + r] * (1 << info.zero_point_log2));
          first = kPlanes == 2 ? AddI(first, zero_point) : zero_point;
        }
        dot[r] = first;
      }
      DotRows<MaxCode(F), MT, R>(w + j, kSteps, codes, dot);
      STAFFEL_UNROLL(8)
      for (int r = 0; r < R; r++) {
        const F32 v = Mul(ToFloat(dot[r]), Set(scale[b * MT + r]));
        sums[r] = Fma(v, scales.scale[b * kPer + h], sums[r]);
        if constexpr (info.mins) {
          sums[r] = Fma(scales.min[b], Set(scaled_sum[b * MT + r]), sums[r]);
        }
      }
    }
  }
}

// out[MT][16] = the group's products with the MT rows of the tile at `data`.
template <Format F, int MT, int kPlanes>
void CodeProduct(const uint8_t* group, uint8_t* data, int cols, float* out) {
  constexpr FormatInfo info = InfoOf(F);
  constexpr int kRest = MT % kRowsPerPass, kWhole = MT - kRest;
  const int padded = PaddedCols(cols);
  const CodeTile a = MakeCodeTile(data, kPlanes, MT, padded);
  F32 sums[kParts][MT];
  for (int p = 0; p < kParts; p++) {
    for (int r = 0; r < MT; r++) sums[p][r] = Zero();
  }
  const uint8_t* tile = group;
  for (int k = 0; k < padded; k += info.tile_k, tile += TileBytes(F)) {
    for (int p = 0; p < kParts; p++) {
      for (int r = 0; r < kWhole; r += kRowsPerPass) {
        CodeTiles<F, MT, kPlanes, kRowsPerPass>(tile, a, k, r, p, sums[p] + r);
      }
      if constexpr (kRest > 0)
        CodeTiles<F, MT, kPlanes, kRest>(tile, a, k, kWhole, p, sums[p] + kWhole);
    }
  }
  for (int r = 0; r < MT; r++) {
    for (int p = 0; p < kParts; p++) Store(out + kGroup * r + kLanes * p, sums[p][r]);
  }
}

// Rows [row, row + R) of a tile of MT f32 rows against all weight tiles of the group.
template <Format F, int MT, int R>
STAFFEL_INLINE void FloatRows(const uint8_t* group, const float* a, int padded, int row,
                              float* out) {
  for (int p = 0; p < kParts; p++) {
    F32 even[R], odd[R];
    for (int r = 0; r < R; r++) even[r] = odd[r] = Zero();
    const uint8_t* tile = group;
    const float* x = a + row;  // [k][MT]
    for (int k0 = 0; k0 < padded; k0 += InfoOf(F).tile_k, tile += TileBytes(F)) {
      ForEachPair<F>(tile, p, [&](int k, F32 w0, F32 w1) STAFFEL_INLINE_LAMBDA {
        const float* x0 = x + int64_t{k0 + k} * MT;
        STAFFEL_UNROLL(8)
        for (int r = 0; r < R; r++) {
          even[r] = Fma(w0, Set(x0[r]), even[r]);
          odd[r] = Fma(w1, Set(x0[MT + r]), odd[r]);
        }
      });
    }
    for (int r = 0; r < R; r++) {
      Store(out + kGroup * (row + r) + kLanes * p, Add(even[r], odd[r]));
    }
  }
}

template <Format F, int MT>
void FloatProduct(const uint8_t* group, uint8_t* data, int cols, float* out) {
  constexpr int kRest = MT % kRowsPerPass, kWhole = MT - kRest;
  const float* a = reinterpret_cast<const float*>(data);
  for (int r = 0; r < kWhole; r += kRowsPerPass) {
    FloatRows<F, MT, kRowsPerPass>(group, a, PaddedCols(cols), r, out);
  }
  if constexpr (kRest > 0) FloatRows<F, MT, kRest>(group, a, PaddedCols(cols), kWhole, out);
}

template <int MT, int R>
STAFFEL_INLINE void Bf16Rows(const uint8_t* group, const uint8_t* data, int pairs, int row,
                             float* out) {
  for (int p = 0; p < kParts; p++) {
    F32 even[R], odd[R];
    for (int r = 0; r < R; r++) even[r] = odd[r] = Zero();
    const uint8_t* w = group + p * kPartBytes;
    const uint8_t* x = data + 4 * row;  // [k / 2][MT][2]
    for (int i = 0; i < pairs; i += 2, w += 2 * kLine, x += 8 * MT) {
      const Bytes w0 = LoadBytes(w), w1 = LoadBytes(w + kLine);
      STAFFEL_UNROLL(8)
      for (int r = 0; r < R; r++) {
        even[r] = DotPairs(even[r], w0, Broadcast4(x + 4 * r));
        odd[r] = DotPairs(odd[r], w1, Broadcast4(x + 4 * (MT + r)));
      }
    }
    for (int r = 0; r < R; r++) {
      Store(out + kGroup * (row + r) + kLanes * p, Add(even[r], odd[r]));
    }
  }
}

template <int MT>
void Bf16Product(const uint8_t* group, uint8_t* data, int cols, float* out) {
  constexpr int kRest = MT % kRowsPerPass, kWhole = MT - kRest;
  const int pairs = PaddedCols(cols) / 2;
  for (int r = 0; r < kWhole; r += kRowsPerPass) {
    Bf16Rows<MT, kRowsPerPass>(group, data, pairs, r, out);
  }
  if constexpr (kRest > 0) Bf16Rows<MT, kRest>(group, data, pairs, kWhole, out);
}

using ProductFn = void (*)(const uint8_t* group, uint8_t* data, int cols, float* out);

template <Format F, int MT>
ProductFn QuantisedProduct(ActivationForm form) {
  if (form == ActivationForm::kInt16) return CodeProduct<F, MT, 2>;
  return form == ActivationForm::kInt8 ? CodeProduct<F, MT, 1> : FloatProduct<F, MT>;
}

template <int MT>
ProductFn FindProductOf(Format format, ActivationForm form) {
  switch (format) {
    case kQ4_0:
      return QuantisedProduct<kQ4_0, MT>(form);
    case kQ4_1:
      return QuantisedProduct<kQ4_1, MT>(form);
    case kQ5_0:
      return QuantisedProduct<kQ5_0, MT>(form);
    case kQ5_1:
      return QuantisedProduct<kQ5_1, MT>(form);
    case kQ8_0:
      return QuantisedProduct<kQ8_0, MT>(form);
    case kQ4_K:
      return QuantisedProduct<kQ4_K, MT>(form);
    case kQ5_K:
      return QuantisedProduct<kQ5_K, MT>(form);
    case kQ6_K:
      return QuantisedProduct<kQ6_K, MT>(form);
    case kF16:
      return FloatProduct<kF16, MT>;
    case kBF16:
      return form == ActivationForm::kBf16 ? Bf16Product<MT> : FloatProduct<kBF16, MT>;
    default:
      return FloatProduct<kF32, MT>;
  }
}

// The product of a weight type with activations of a form, for tiles of `rows` rows.
inline ProductFn FindProduct(DType type, ActivationForm form, int rows) {
  const auto format = static_cast<Format>(type);
  switch (rows) {
    case 1:
      return FindProductOf<1>(format, form);
    case 2:
      return FindProductOf<2>(format, form);
    case 3:
      return FindProductOf<3>(format, form);
    case 4:
      return FindProductOf<4>(format, form);
    case 5:
      return FindProductOf<5>(format, form);
    case 6:
      return FindProductOf<6>(format, form);
    case 7:
      return FindProductOf<7>(format, form);
    default:
      return FindProductOf<8>(format, form);
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
