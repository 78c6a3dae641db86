// Reading one tile of packed weights: unsigned code operands for integer dots, scales and mins as
// f32 lanes (one lane an output), and whole weights as f32.
#pragma once

#include "kernels/cpu/lanes.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// The eight operands of block `b`, outputs of `part`.
template <Format F>
STAFFEL_INLINE void LoadOperands(const uint8_t* tile, int b, int part, Bytes w[8]) {
  constexpr FormatInfo info = InfoOf(F);
  const uint8_t* q = tile + BlockOffset(F, b) + part * kPartBytes;
  const uint8_t* h = q + info.code_bytes;
  if constexpr (F == kQ8_0) {
    STAFFEL_UNROLL(8)
    for (int j = 0; j < 8; j++) w[j] = LoadBytes(q + kLine * j);
    return;
  }
  const Bytes low = SetBytes(15);
  STAFFEL_UNROLL(4)
  for (int j = 0; j < 4; j++) {
    const Bytes v = LoadBytes(q + kLine * j);
    w[j] = AndBytes(v, low);
    w[j + 4] = AndBytes(Shr16<4>(v), low);
  }
  if constexpr (info.high_bytes == 64) {
    const Bytes v = LoadBytes(h), bit = SetBytes(16);
    w[0] = OrMasked(w[0], Shl16<4>(v), bit);
    w[1] = OrMasked(w[1], Shl16<3>(v), bit);
    w[2] = OrMasked(w[2], Shl16<2>(v), bit);
    w[3] = OrMasked(w[3], Shl16<1>(v), bit);
    w[4] = OrMasked(w[4], v, bit);
    w[5] = OrMasked(w[5], Shr16<1>(v), bit);
    w[6] = OrMasked(w[6], Shr16<2>(v), bit);
    w[7] = OrMasked(w[7], Shr16<3>(v), bit);
  }
  if constexpr (info.high_bytes == 128) {
    const Bytes bits = SetBytes(0x30);
    STAFFEL_UNROLL(2)
    for (int j = 0; j < 8; j += 4) {
      const Bytes v = LoadBytes(h + kLine * (j / 4));
      w[j] = OrMasked(w[j], Shl16<4>(v), bits);
      w[j + 1] = OrMasked(w[j + 1], Shl16<2>(v), bits);
      w[j + 2] = OrMasked(w[j + 2], v, bits);
      w[j + 3] = OrMasked(w[j + 3], Shr16<2>(v), bits);
    }
  }
}

template <Format F>
inline constexpr int kScalesPerBlock = F == kQ6_K ? 2 : 1;  // of 32 weights

// All scales (and mins) of a tile for the outputs of `part`.
template <Format F>
struct TileScales {
  static constexpr FormatInfo kInfo = InfoOf(F);
  static constexpr int kBlocks = kInfo.tile_k / 32;
  F32 scale[kBlocks * kScalesPerBlock<F>];
  F32 min[kInfo.mins ? kBlocks : 1];

  STAFFEL_INLINE TileScales(const uint8_t* tile, int part) {
    const uint8_t* t = tile;
    if constexpr (kInfo.tile_k == 64) {
      for (int b = 0; b < 2; b++) scale[b] = LoadF16(t + 32 * b + 2 * kLanes * part);
      if constexpr (kInfo.mins) {
        for (int b = 0; b < 2; b++) min[b] = LoadF16(t + 64 + 32 * b + 2 * kLanes * part);
      }
    } else if constexpr (F == kQ6_K) {
      const F32 d = LoadF16(t + 256 + 2 * kLanes * part);
      STAFFEL_UNROLL(16)
      for (int j = 0; j < 16; j++) scale[j] = Mul(d, LoadS8(t + 16 * j + kLanes * part));
    } else {
      LoadSixBit(t, part);
    }
  }

 private:
  // Value 16 * j + row: its low 4 bits are a nibble of byte (16 j + row) % 128, its high 2 bits a
  // pair of byte 128 + (16 j + row) % 64; j < 8 are scales, j >= 8 mins.
  STAFFEL_INLINE void LoadSixBit(const uint8_t* t, int part) {
    const F32 d = LoadF16(t + 192 + 2 * kLanes * part);
    const F32 dmin = Sub(Zero(), LoadF16(t + 224 + 2 * kLanes * part));
    alignas(64) uint8_t v[256];
    const Bytes low = SetBytes(15), high = SetBytes(0x30);
    for (int at = 0; at < kLine; at += kPartBytes) {
      const Bytes n0 = LoadBytes(t + at), n1 = LoadBytes(t + kLine + at);
      const Bytes pairs = LoadBytes(t + 2 * kLine + at);
      StoreBytes(v + at, OrMasked(AndBytes(n0, low), Shl16<4>(pairs), high));
      StoreBytes(v + 64 + at, OrMasked(AndBytes(n1, low), Shl16<2>(pairs), high));
      StoreBytes(v + 128 + at, OrMasked(AndBytes(Shr16<4>(n0), low), pairs, high));
      StoreBytes(v + 192 + at, OrMasked(AndBytes(Shr16<4>(n1), low), Shr16<2>(pairs), high));
    }
    STAFFEL_UNROLL(8)
    for (int j = 0; j < 8; j++) {
      scale[j] = Mul(d, LoadU8(v + 16 * j + kLanes * part));
      min[j] = Mul(dmin, LoadU8(v + 128 + 16 * j + kLanes * part));
    }
  }
};

// Calls f(k, weight k, weight k + 1) for the tile's even k in ascending order, lanes are the
// outputs of `part`; the values are those of the stored format, rounded to f32 once.
template <Format F, class Fn>
STAFFEL_INLINE void ForEachPair(const uint8_t* tile, int part, Fn&& f) {
  constexpr FormatInfo info = InfoOf(F);
  if constexpr (F == kF32 || F == kF16) {
    constexpr int kBytes = F == kF32 ? 4 : 2;
    for (int k = 0; k < info.tile_k; k += 2) {
      const uint8_t* p = tile + kBytes * (k * kGroup + part * kLanes);
      if constexpr (F == kF16) {
        f(k, LoadF16(p), LoadF16(p + kBytes * kGroup));
      } else {
        const float* x = reinterpret_cast<const float*>(p);
        f(k, Load(x), Load(x + kGroup));
      }
    }
  } else if constexpr (F == kBF16) {
    for (int k = 0; k < info.tile_k; k += 2) {
      const Bytes pair = LoadBytes(tile + kLine * (k / 2) + part * kPartBytes);
      f(k, PairLow(pair), PairHigh(pair));
    }
  } else {
    constexpr int kPer = kScalesPerBlock<F>;
    const TileScales<F> scales(tile, part);
    for (int b = 0; b < info.tile_k / 32; b++) {
      Bytes w[8];
      LoadOperands<F>(tile, b, part, w);
      for (int j = 0; j < 8; j++) {
        const F32 s = scales.scale[b * kPer + j * kPer / 8];
        F32 m;
        if constexpr (info.mins) {
          m = scales.min[b];
        } else {
          m = Mul(s, Set(-static_cast<float>(1 << info.zero_point_log2)));
        }
        const int k = 32 * b + 4 * j;
        f(k, Fma(s, ByteToFloat<0>(w[j]), m), Fma(s, ByteToFloat<1>(w[j]), m));
        f(k + 2, Fma(s, ByteToFloat<2>(w[j]), m), Fma(s, ByteToFloat<3>(w[j]), m));
      }
    }
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
