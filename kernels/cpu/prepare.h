// Activation rows: residual, RMS norm, and the forms that matrix products read.
#pragma once

#include "kernels/cpu/lanes.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// 1 / sqrt(mean(x^2) + eps). Four sums: one would wait for its own additions.
STAFFEL_INLINE float InverseRms(const float* x, int count, float eps) {
  F32 sums[4] = {Zero(), Zero(), Zero(), Zero()};
  int i = 0;
  for (; i + 4 * kLanes <= count; i += 4 * kLanes) {
    for (int j = 0; j < 4; j++) {
      const F32 v = Load(x + i + kLanes * j);
      sums[j] = Fma(v, v, sums[j]);
    }
  }
  for (; i < count; i += kLanes) {
    const F32 v = LoadLanes(x + i, Min(kLanes, count - i));
    sums[0] = Fma(v, v, sums[0]);
  }
  const float sum = ReduceAdd(Add(Add(sums[0], sums[1]), Add(sums[2], sums[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(count) + eps);
}

// 32 values to codes with scale max|x| / (the largest code): row `row`, columns [32 * block,
// 32 * block + 32).
template <int kPlanes>
STAFFEL_INLINE void QuantizeBlock(const CodeTile& tile, int row, int block,
                                  const F32 x[32 / kLanes]) {
  constexpr int kVectors = 32 / kLanes;
  constexpr float kTop = kPlanes == 2 ? kInt16Max : 127;
  F32 top = AbsF(x[0]);
  for (int i = 1; i < kVectors; i++) top = MaxF(AbsF(x[i]), top);
  const float max = ReduceMax(top);
  // Below 1e-30 the inverse would overflow, and such a block adds nothing to any sum.
  const float inverse = max > 1e-30f ? kTop / max : 0.0f;
  const float scale = max > 1e-30f ? max * (1.0f / kTop) : 0.0f;
  alignas(32) uint8_t codes[kPlanes][32];
  int32_t sums[kVectors];
  for (int i = 0; i < kVectors; i++) {
    const I32 q = RoundToInt(Mul(x[i], Set(inverse)));
    if constexpr (kPlanes == 2) {
      const I32 high = ShrI<kPlaneBits>(AddI(q, SetI(1 << (kPlaneBits - 1))));
      StoreInt8(codes[0] + kLanes * i, high);
      StoreInt8(codes[1] + kLanes * i, SubI(q, ShlI<kPlaneBits>(high)));
    } else {
      StoreInt8(codes[0] + kLanes * i, q);
    }
    sums[i] = ReduceAddI(q);
  }
  int32_t first = 0, second = 0;
  for (int i = 0; i < kVectors; i++) (i < kVectors / 2 ? first : second) += sums[i];
  const int n = tile.rows;
  for (int p = 0; p < kPlanes; p++) {
    uint8_t* q = tile.q + (int64_t{8} * (kPlanes * block + p) * n + row) * 4;
    for (int j = 0; j < 8; j++) __builtin_memcpy(q + 4 * j * n, codes[p] + 4 * j, 4);
  }
  const int at = block * n + row;
  tile.scale[at] = scale;
  tile.scaled_sum[at] = scale * static_cast<float>(first + second);
  tile.neg_sum32[at] = -(first + second);
  tile.neg_sum16[2 * block * n + row] = -first;
  tile.neg_sum16[(2 * block + 1) * n + row] = -second;
}

STAFFEL_INLINE void Quantize(const CodeTile& tile, int row, int block, const F32 x[32 / kLanes]) {
  if (tile.planes == 2) {
    QuantizeBlock<2>(tile, row, block, x);
  } else {
    QuantizeBlock<1>(tile, row, block, x);
  }
}

// Writes row `row` of a tile: x(i, lanes) gives the columns [i, i + lanes) with zeros in the other
// lanes. The padding becomes zeros.
template <class Fn>
STAFFEL_INLINE void WriteRow(const Activations& a, int tile, int row, Fn&& x) {
  const int n = TileRowCount(a.rows, tile), padded = PaddedCols(a.cols);
  uint8_t* data = TileData(a, tile);
  const auto load = [&](int i) STAFFEL_INLINE_LAMBDA {
    return i < a.cols ? x(i, Min(kLanes, a.cols - i)) : Zero();
  };
  if (Planes(a.form) > 0) {
    const CodeTile t = MakeCodeTile(data, Planes(a.form), n, padded);
    for (int b = 0; b < padded / 32; b++) {
      F32 v[32 / kLanes];
      for (int i = 0; i < 32 / kLanes; i++) v[i] = load(32 * b + kLanes * i);
      Quantize(t, row, b, v);
    }
    return;
  }
  for (int i = 0; i < padded; i += kLanes) {
    if (a.form == ActivationForm::kF32) {
      alignas(64) float v[kLanes];
      Store(v, load(i));
      float* out = reinterpret_cast<float*>(data) + int64_t{i} * n + row;
      for (int j = 0; j < kLanes; j++) out[j * n] = v[j];
    } else {
      alignas(64) uint16_t v[kLanes];
      StoreBf16(v, load(i));
      uint8_t* out = data + (int64_t{i} / 2 * n + row) * 4;
      for (int j = 0; j < kLanes / 2; j++) __builtin_memcpy(out + 4 * j * n, v + 2 * j, 4);
    }
  }
}

STAFFEL_INLINE void AddDelta(const PrepareParams& p, float* x, const float* delta) {
  if (p.post_norm == nullptr) {
    ForEachVector(p.cols, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
      StoreLanes(x + i, n, Add(LoadLanes(x + i, n), LoadLanes(delta + i, n)));
    });
    return;
  }
  const F32 inverse = Set(InverseRms(delta, p.cols, p.eps));
  ForEachVector(p.cols, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
    const F32 d = Mul(Mul(LoadLanes(delta + i, n), inverse), LoadLanes(p.post_norm + i, n));
    StoreLanes(x + i, n, Add(LoadLanes(x + i, n), d));
  });
}

inline void PrepareRow(const PrepareParams& p, int tile, int row) {
  const int64_t m = int64_t{tile} * kTileRows + row;
  float* x = p.residual + m * p.residual_stride;
  if (p.delta != nullptr) AddDelta(p, x, p.delta + m * p.delta_stride);
  if (p.out == nullptr && p.out_f32 == nullptr) return;
  const float* norm = p.norm;
  const F32 inverse = Set(norm != nullptr ? InverseRms(x, p.cols, p.eps) : 1.0f);
  const auto y = [&](int i, int n) STAFFEL_INLINE_LAMBDA {
    const F32 v = LoadLanes(x + i, n);
    return norm != nullptr ? Mul(Mul(v, inverse), LoadLanes(norm + i, n)) : v;
  };
  if (p.out_f32 != nullptr) {
    float* out = p.out_f32 + m * p.out_f32_stride;
    ForEachVector(p.cols,
                  [&](int i, int n) STAFFEL_INLINE_LAMBDA { StoreLanes(out + i, n, y(i, n)); });
  }
  if (p.out != nullptr) WriteRow(*p.out, tile, row, y);
}

inline void Prepare(const PrepareParams& p) {
  for (int tile = p.tile_begin; tile < p.tile_end; tile++) {
    const int n = TileRowCount(p.rows, tile);
    for (int row = 0; row < n; row++) PrepareRow(p, tile, row);
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
