// Per-head norm, rotary position embedding and the KV store.
#pragma once

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/prepare.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

// Plain loops on distinct arrays: the compiler vectorises them for the level.
STAFFEL_INLINE void RotateInterleaved(float* __restrict v, const float* __restrict cos_sin,
                                      int rope_dim) {
  for (int i = 0; i < rope_dim; i += 2) {
    const float a = v[i], b = v[i + 1], c = cos_sin[i], s = cos_sin[i + 1];
    v[i] = a * c - b * s;
    v[i + 1] = b * c + a * s;
  }
}
STAFFEL_INLINE void RotateHalves(float* __restrict first, float* __restrict second,
                                 const float* __restrict cos_sin, int half) {
  for (int i = 0; i < half; i++) {
    const float a = first[i], b = second[i], c = cos_sin[2 * i], s = cos_sin[2 * i + 1];
    first[i] = a * c - b * s;
    second[i] = b * c + a * s;
  }
}

STAFFEL_INLINE void NormAndRotate(const RopeStoreParams& p, const float* norm, int position,
                                  float* head) {
  if (norm != nullptr) {
    const int dim = p.kv->head_dim;
    const F32 inverse = Set(InverseRms(head, dim, p.norm_eps));
    ForEachVector(dim, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
      StoreLanes(head + i, n, Mul(Mul(LoadLanes(head + i, n), inverse), LoadLanes(norm + i, n)));
    });
  }
  const float* cos_sin = p.cos_sin + int64_t{position} * p.rope_dim;
  if (p.pairs == RopePairs::kInterleaved) {
    RotateInterleaved(head, cos_sin, p.rope_dim);
  } else {
    RotateHalves(head, head + p.rope_dim / 2, cos_sin, p.rope_dim / 2);
  }
}

// One token's k and v into its slot; dims beyond head_dim are zeros.
STAFFEL_INLINE void StoreKv(const KvLayer& kv, int sub_block, int slot, int head, const float* k,
                            const float* v) {
  const int dim = PaddedHeadDim(kv.head_dim);
  alignas(64) uint16_t bits[kMaxHeadDim];
  const auto round = [&](const float* x) STAFFEL_INLINE_LAMBDA {
    for (int i = 0; i < dim; i += kLanes) {
      const int n = Min(kLanes, kv.head_dim - i);
      StoreBf16(bits + i, n > 0 ? LoadLanes(x + i, n) : Zero());
    }
  };
  uint16_t* keys = KvHead(kv, sub_block, head);
  uint16_t* values = keys + kKvTokens * dim + slot / 2 * 2 * dim + slot % 2;
  round(k);
  for (int i = 0; i < dim; i += 2) {
    __builtin_memcpy(keys + i * kKvTokens + 2 * slot, bits + i, 4);
  }
  round(v);
  for (int i = 0; i < dim; i++) values[2 * i] = bits[i];
}

inline void RopeStore(const RopeStoreParams& p) {
  const KvLayer& kv = *p.kv;
  const int dim = kv.head_dim;
  for (int row = p.row_begin; row < p.row_end; row++) {
    float* q = p.qkv + row * p.qkv_stride;
    float* k = q + int64_t{p.q_heads} * dim;
    const float* v = k + int64_t{kv.kv_heads} * dim;
    const int position = p.positions[row];
    for (int h = p.q_head_begin; h < p.q_head_end; h++) {
      NormAndRotate(p, p.q_norm, position, q + h * dim);
    }
    for (int h = p.kv_head_begin; h < p.kv_head_end; h++) {
      NormAndRotate(p, p.k_norm, position, k + h * dim);
      StoreKv(kv, p.sub_blocks[row], position % kKvTokens, h, k + h * dim, v + h * dim);
    }
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
