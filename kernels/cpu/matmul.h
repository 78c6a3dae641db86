// Drivers of the tile products: plain and gated, with their epilogues.
#pragma once

#include "kernels/cpu/prepare.h"
#include "kernels/cpu/tile_product.h"
#include "kernels/cpu/vector_math.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

STAFFEL_INLINE const uint8_t* GroupData(const PackedMatrix& m, int group) {
  return m.data + group * m.group_stride_bytes;
}

// Stores one group's products [rows][16] of a tile.
STAFFEL_INLINE void StoreGroup(const MatmulParams& p, int group, int tile, int rows,
                               const float* products) {
  const int n0 = group * kGroup, outputs = Min(kGroup, p.weight->rows - n0);
  for (int r = 0; r < rows; r++) {
    float* out = p.out + (int64_t{tile} * kTileRows + r) * p.out_stride + n0;
    ForEachVector(outputs, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
      F32 v = Load(products + r * kGroup + i);
      if (p.bias != nullptr) v = Add(v, LoadLanes(p.bias + n0 + i, n));
      if (p.accumulate) v = Add(LoadLanes(out + i, n), v);
      StoreLanes(out + i, n, v);
    });
  }
}

inline void Matmul(const MatmulParams& p) {
  const Activations& in = *p.in;
  const ProductFn whole = FindProduct(p.weight->type, in.form, kTileRows);
  alignas(64) float products[kTileRows * kGroup];
  for (int g = p.group_begin; g < p.group_end; g++) {
    for (int tile = p.tile_begin; tile < p.tile_end; tile++) {
      const int rows = TileRowCount(in.rows, tile);
      const ProductFn product =
          rows == kTileRows ? whole : FindProduct(p.weight->type, in.form, rows);
      product(GroupData(*p.weight, g), TileData(in, tile), in.cols, products);
      StoreGroup(p, g, tile, rows, products);
    }
  }
}

STAFFEL_INLINE F32 Gate(GateFunction function, F32 x) {
  if (function == GateFunction::kSilu) return Div(x, Add(Set(1.0f), Exp(Sub(Zero(), x))));
  // GELU, tanh form: x * (1 + tanh(u)) / 2 = x / (1 + exp(-2u)).
  const F32 cubic = Fma(Mul(Mul(x, x), x), Set(0.044715f), x);
  return Div(x, Add(Set(1.0f), Exp(Mul(cubic, Set(-2 * 0.7978845608028654f)))));
}

// h[rows][kGroups * 16] of one tile: groups [group, group + groups) of gate and up.
struct GatedTile {
  alignas(64) float gate[kTileRows * kGroup];
  alignas(64) float up[kTileRows * kGroup];
  alignas(64) float h[kTileRows][2 * kGroup];
};

STAFFEL_INLINE void ComputeGated(const GatedMatmulParams& p, int group, int tile, int rows,
                                 int column, GatedTile& t) {
  const Activations& in = *p.in;
  const ProductFn gate = FindProduct(p.gate->type, in.form, rows);
  const ProductFn up = FindProduct(p.up->type, in.form, rows);
  gate(GroupData(*p.gate, group), TileData(in, tile), in.cols, t.gate);
  up(GroupData(*p.up, group), TileData(in, tile), in.cols, t.up);
  for (int r = 0; r < rows; r++) {
    for (int i = 0; i < kGroup; i += kLanes) {
      const F32 g = Gate(p.function, Load(t.gate + r * kGroup + i));
      Store(t.h[r] + column + i, Mul(g, Load(t.up + r * kGroup + i)));
    }
  }
}

// Values of outputs [n0, n0 + count) of a tile's rows into p.out; outputs beyond the matrix are
// zeros, as are the padding columns after the last group.
inline void StoreGatedActivations(const GatedMatmulParams& p, int n0, int count, int tile, int rows,
                                  GatedTile& t) {
  const Activations& out = *p.out;
  const int padded = PaddedCols(out.cols);
  uint8_t* data = TileData(out, tile);
  const int valid = out.cols - n0;
  if (valid < count) {
    for (int r = 0; r < rows; r++) {
      for (int i = valid; i < count; i++) t.h[r][i] = 0;
    }
  }
  const bool last = n0 + count >= out.cols;
  if (Planes(out.form) > 0) {
    const CodeTile to = MakeCodeTile(data, Planes(out.form), rows, padded);
    for (int r = 0; r < rows; r++) {
      F32 v[32 / kLanes];
      for (int i = 0; i < 32 / kLanes; i++) v[i] = Load(t.h[r] + kLanes * i);
      Quantize(to, r, n0 / 32, v);
      for (int i = 0; i < 32 / kLanes; i++) v[i] = Zero();
      for (int b = n0 / 32 + 1; last && b < padded / 32; b++) Quantize(to, r, b, v);
    }
    return;
  }
  const int end = last ? padded : n0 + count;
  for (int n = n0; n < end; n += 2) {
    for (int r = 0; r < rows; r++) {
      const float a = n - n0 < count ? t.h[r][n - n0] : 0,
                  b = n - n0 < count ? t.h[r][n - n0 + 1] : 0;
      if (out.form == ActivationForm::kF32) {
        float* to = reinterpret_cast<float*>(data) + int64_t{n} * rows + r;
        to[0] = a;
        to[rows] = b;
      } else {
        alignas(64) float pair[kLanes] = {a, b};
        alignas(64) uint16_t bits[kLanes];
        StoreBf16(bits, Load(pair));
        __builtin_memcpy(data + (int64_t{n} / 2 * rows + r) * 4, bits, 4);
      }
    }
  }
}

inline void GatedMatmul(const GatedMatmulParams& p) {
  const int step = p.out != nullptr && Planes(p.out->form) > 0 ? 2 : 1;
  GatedTile t;
  for (int g = p.group_begin; g < p.group_end; g += step) {
    for (int tile = p.tile_begin; tile < p.tile_end; tile++) {
      const int rows = TileRowCount(p.in->rows, tile), n0 = g * kGroup;
      const int groups = Min(step, p.group_end - g);
      for (int i = 0; i < groups; i++) ComputeGated(p, g + i, tile, rows, i * kGroup, t);
      if (p.out != nullptr) {
        if (groups < step) {
          for (int r = 0; r < rows; r++) {
            for (int i = kGroup; i < 2 * kGroup; i++) t.h[r][i] = 0;
          }
        }
        StoreGatedActivations(p, n0, step * kGroup, tile, rows, t);
      } else {
        const int outputs = Min(kGroup, p.gate->rows - n0);
        for (int r = 0; r < rows; r++) {
          float* out = p.out_f32 + (int64_t{tile} * kTileRows + r) * p.out_f32_stride + n0;
          ForEachVector(outputs, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
            StoreLanes(out + i, n, Load(t.h[r] + i));
          });
        }
      }
    }
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
