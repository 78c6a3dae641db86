// Addresses in the KV store; the layout is told at KvLayer in kernels/api/cpu_kernels.h.
#pragma once

#include "kernels/cpu/layout.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

STAFFEL_INLINE constexpr int PaddedHeadDim(int head_dim) { return (head_dim + 15) / 16 * 16; }

// Elements of one (sub-block, kv head): 16 tokens of K, then of V.
STAFFEL_INLINE constexpr int64_t KvHeadElements(int head_dim) {
  return int64_t{2} * kKvTokens * PaddedHeadDim(head_dim);
}
STAFFEL_INLINE uint16_t* KvHead(const KvLayer& kv, int64_t sub_block, int head) {
  return kv.data + (sub_block * kv.kv_heads + head) * KvHeadElements(kv.head_dim);
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
