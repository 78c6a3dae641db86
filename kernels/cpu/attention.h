// Paged causal attention: up to 8 rows that share a kv head, online softmax in steps of 64 tokens
// (Milakov and Gimelshein 2018, arXiv 1805.02867). In the scores the lanes are tokens, in the
// outputs dims, so neither needs a sum across lanes.
//
// Steps start at multiples of 64 whatever the rows are, and a step in which a row sees nothing
// leaves its state as it is: a row's bits do not depend on its company. Values behind the longest
// row's limit may be another sequence's leftovers; they are masked on load, so that not even a NaN
// there can come through.
#pragma once

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cpu/vector_math.h"

namespace staffel::kernels::STAFFEL_CPU_LEVEL {

inline constexpr int kStepTokens = 64;
inline constexpr int kStepBlocks = kStepTokens / kKvTokens;
inline constexpr float kMasked = -1e30f;  // finite: kMasked - kMasked must not be NaN

// The KV of one step of 64 tokens.
struct KvStep {
  int token = 0;           // first
  int begin = 0, end = 0;  // sub-blocks that any row sees
  int last_tokens = 0;     // tokens of sub-block end - 1 before the longest limit
  const uint16_t* kv[kStepBlocks] = {};
  const uint16_t* next[kStepBlocks] = {};  // same place one step later, for prefetching
};

STAFFEL_INLINE const uint16_t* SubBlockOf(const AttentionParams& p, int token) {
  const int64_t block = p.blocks[token / p.block_size];
  const int64_t sub_block = block * (p.block_size / kKvTokens) + token % p.block_size / kKvTokens;
  return KvHead(*p.kv, sub_block, p.kv_head);
}

// Where the next call starts; its blocks are mostly neighbours. Unknown: lines that are at hand.
STAFFEL_INLINE const uint16_t* AfterLast(const AttentionParams& p, const uint16_t* current, int b) {
  if (p.next == nullptr) return current;
  const uint64_t stride =
      2 * static_cast<uint64_t>(p.kv->kv_heads * KvHeadElements(p.kv->head_dim));
  return reinterpret_cast<const uint16_t*>(reinterpret_cast<uintptr_t>(p.next) + b * stride);
}

STAFFEL_INLINE KvStep MakeStep(const AttentionParams& p, int token, int earliest, int longest) {
  KvStep s;
  s.token = token;
  s.begin = Max(0, (earliest - token) / kKvTokens);
  s.end = Min(kStepBlocks, (longest - token + kKvTokens - 1) / kKvTokens);
  s.last_tokens = Min(kKvTokens, longest - token - (s.end - 1) * kKvTokens);
  for (int b = 0; b < kStepBlocks; b++) {
    const int inside = Max(s.begin, Min(b, s.end - 1));
    s.kv[b] = SubBlockOf(p, token + inside * kKvTokens);
    const int ahead = token + kStepTokens + b * kKvTokens;
    s.next[b] = ahead < longest ? SubBlockOf(p, ahead) : AfterLast(p, s.kv[b], b);
  }
  return s;
}

// No hardware prefetcher follows the block table. One prefetch beside each load, to L2: decode of 3
// heads of 64 reads 22 GB/s of 38 (Zen 4); to L1, whose miss buffers are fewer, 15.
STAFFEL_INLINE void PrefetchSame(const uint16_t* next, int64_t offset) {
  __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(next) +
                                                   2 * static_cast<uintptr_t>(offset)),
                     0, 2);
}

// State of MT rows. kExact: q and probabilities are f32, else bf16 for DotPairs.
template <int MT, bool kExact>
struct AttentionState {
  alignas(64) float scores[MT][kStepTokens];
  alignas(64) float out[MT][kMaxHeadDim];
  alignas(64) float q[MT][kExact ? kMaxHeadDim : kMaxHeadDim / 2];  // bf16 pairs unless kExact
  alignas(64) float probabilities[MT][kExact ? kStepTokens : kStepTokens / 2];
  float top[MT], sum[MT], correction[MT];
  int limit[MT];
};

// acc + x . pair, x at element `at` (even) of a row of f32, or of bf16.
template <bool kExact>
STAFFEL_INLINE F32 DotRow(F32 acc, Bytes pair, const float* row, int at) {
  if constexpr (kExact) {
    return Fma(PairHigh(pair), Set(row[at + 1]), Fma(PairLow(pair), Set(row[at]), acc));
  } else {
    return DotPairs(acc, pair, Broadcast4(row + at / 2));
  }
}
template <bool kExact>
STAFFEL_INLINE void StoreRow(float* row, int at, F32 v) {
  if constexpr (kExact) {
    Store(row + at, v);
  } else {
    StoreBf16(reinterpret_cast<uint16_t*>(row) + at, v);
  }
}

// Vectors of 16-token scores held at once: 16 sums in the registers of AVX-512, 8 in AVX2's.
template <int MT>
inline constexpr int kScoreVectors = kParts == 1 ? (MT <= 4 ? 4 : 2) : (MT <= 4 ? 2 : 1);

template <int MT, bool kExact>
STAFFEL_INLINE void Scores(const KvStep& s, int dim, AttentionState<MT, kExact>& state) {
  constexpr int kVectors = kScoreVectors<MT>;
  for (int v0 = s.begin * kParts / kVectors * kVectors; v0 < s.end * kParts; v0 += kVectors) {
    F32 acc[MT][kVectors];
    for (int m = 0; m < MT; m++) {
      for (int i = 0; i < kVectors; i++) acc[m][i] = Zero();
    }
    const uint16_t *at[kVectors], *next[kVectors];
    for (int i = 0; i < kVectors; i++) {
      at[i] = s.kv[(v0 + i) / kParts] + (v0 + i) % kParts * 2 * kLanes;
      next[i] = s.next[(v0 + i) / kParts];
    }
    STAFFEL_UNROLL(2)
    for (int d = 0; d < dim; d += 2) {
      Bytes keys[kVectors];
      STAFFEL_UNROLL(4)
      for (int i = 0; i < kVectors; i++) {
        keys[i] = LoadBytes(at[i] + d * kKvTokens);
        PrefetchSame(next[i], d * kKvTokens);
      }
      STAFFEL_UNROLL(8)
      for (int m = 0; m < MT; m++) {
        STAFFEL_UNROLL(4)
        for (int i = 0; i < kVectors; i++) {
          acc[m][i] = DotRow<kExact>(acc[m][i], keys[i], state.q[m], d);
        }
      }
    }
    for (int m = 0; m < MT; m++) {
      for (int i = 0; i < kVectors; i++) Store(state.scores[m] + kLanes * (v0 + i), acc[m][i]);
    }
  }
}

// Probabilities of the step (not yet divided by the sum) and the correction of earlier ones.
template <int MT, bool kExact>
STAFFEL_INLINE void Softmax(int window, const KvStep& s, AttentionState<MT, kExact>& state) {
  constexpr int kVectors = kStepTokens / kLanes;
  for (int m = 0; m < MT; m++) {
    const int end = state.limit[m] - s.token;
    const int begin = window > 0 ? end - window : 0;
    F32 v[kVectors], top = Set(state.top[m]);
    for (int i = 0; i < kVectors; i++) {
      const int b = Min(kLanes, Max(0, begin - kLanes * i));
      const int e = Min(kLanes, Max(0, end - kLanes * i));
      v[i] = KeepLanes(Load(state.scores[m] + kLanes * i), b, Max(b, e), Set(kMasked));
      top = MaxF(v[i], top);
    }
    const float new_top = ReduceMax(top);
    alignas(64) float correction[kLanes];
    Store(correction, Exp(Set(state.top[m] - new_top)));
    state.correction[m] = correction[0];
    state.top[m] = new_top;
    F32 sum = Zero();
    for (int i = 0; i < kVectors; i++) {
      // A masked score in a step without any other has a difference of 0 to the top.
      const F32 e = ZeroWhereLess(Exp(Sub(v[i], Set(new_top))), v[i], Set(0.5f * kMasked));
      StoreRow<kExact>(state.probabilities[m], kLanes * i, e);
      if constexpr (kExact) {
        sum = Add(sum, e);
      } else {  // the sum of what the products will use
        sum = Add(sum,
                  LoadBf16(reinterpret_cast<const uint16_t*>(state.probabilities[m]) + kLanes * i));
      }
    }
    state.sum[m] = state.sum[m] * state.correction[m] + ReduceAdd(sum);
  }
}

// Rows [m0, m0 + R) and Z vectors of dims from z0: out = out * correction + probabilities . V.
template <int MT, bool kExact, int R, int Z>
STAFFEL_INLINE void Accumulate(const KvStep& s, int dim, int m0, int z0,
                               AttentionState<MT, kExact>& state) {
  F32 acc[R][Z];
  STAFFEL_UNROLL(4)
  for (int m = 0; m < R; m++) {
    STAFFEL_UNROLL(4)
    for (int z = 0; z < Z; z++) {
      acc[m][z] = Mul(Load(state.out[m0 + m] + kLanes * (z0 + z)), Set(state.correction[m0 + m]));
    }
  }
  const auto add = [&](const Bytes* values, int token) STAFFEL_INLINE_LAMBDA {
    STAFFEL_UNROLL(4)
    for (int m = 0; m < R; m++) {
      STAFFEL_UNROLL(4)
      for (int z = 0; z < Z; z++) {
        acc[m][z] = DotRow<kExact>(acc[m][z], values[z], state.probabilities[m0 + m], token);
      }
    }
  };
  for (int b = s.begin; b < s.end; b++) {
    const int tokens = b == s.end - 1 ? s.last_tokens : kKvTokens;
    const int64_t first = kKvTokens * dim + 2 * kLanes * z0;
    const uint16_t* v = s.kv[b] + first;
    for (int t = 0; t + 2 <= tokens; t += 2) {
      Bytes values[Z];
      STAFFEL_UNROLL(4)
      for (int z = 0; z < Z; z++) {
        values[z] = LoadBytes(v + t * dim + 2 * kLanes * z);
        if (m0 == 0) PrefetchSame(s.next[b], first + t * dim + 2 * kLanes * z);
      }
      add(values, kKvTokens * b + t);
    }
    if (tokens % 2 != 0) {
      Bytes values[Z];
      STAFFEL_UNROLL(4)
      for (int z = 0; z < Z; z++) {
        values[z] = ZeroPairHigh(LoadBytes(v + (tokens - 1) * dim + 2 * kLanes * z));
      }
      add(values, kKvTokens * b + tokens - 1);
    }
  }
  STAFFEL_UNROLL(4)
  for (int m = 0; m < R; m++) {
    STAFFEL_UNROLL(4)
    for (int z = 0; z < Z; z++) Store(state.out[m0 + m] + kLanes * (z0 + z), acc[m][z]);
  }
}

template <int MT, bool kExact, int R>
STAFFEL_INLINE void AccumulateRows(const KvStep& s, int dim, int m0,
                                   AttentionState<MT, kExact>& state) {
  constexpr int kZ = kParts == 1 ? 4 : 2;
  int z = 0;
  for (; z + kZ <= dim / kLanes; z += kZ) Accumulate<MT, kExact, R, kZ>(s, dim, m0, z, state);
  for (; z < dim / kLanes; z++) Accumulate<MT, kExact, R, 1>(s, dim, m0, z, state);
}

// Rows [first, first + MT).
template <int MT, bool kExact>
void AttentionTile(const AttentionParams& p, int first) {
  constexpr int kRows = MT < 4 ? MT : 4, kRest = MT - kRows;
  const int head_dim = p.kv->head_dim, dim = PaddedHeadDim(head_dim);
  AttentionState<MT, kExact> state;
  int longest = 0, earliest = p.limit[first];
  for (int m = 0; m < MT; m++) {
    const int limit = state.limit[m] = p.limit[first + m];
    longest = Max(longest, limit);
    earliest = Min(earliest, p.window > 0 ? Max(0, limit - p.window) : 0);
    state.top[m] = kMasked;
    state.sum[m] = 0;
    for (int i = 0; i < dim; i += kLanes) {
      const int n = Min(kLanes, head_dim - i);
      const F32 q = n > 0 ? LoadLanes(p.q[first + m] + i, n) : Zero();
      StoreRow<kExact>(state.q[m], i, Mul(q, Set(p.scale)));
      Store(state.out[m] + i, Zero());
    }
  }
  for (int t = earliest / kStepTokens * kStepTokens; t < longest; t += kStepTokens) {
    const KvStep step = MakeStep(p, t, earliest, longest);
    Scores<MT, kExact>(step, dim, state);
    Softmax<MT, kExact>(p.window, step, state);
    AccumulateRows<MT, kExact, kRows>(step, dim, 0, state);
    if constexpr (kRest > 0) AccumulateRows<MT, kExact, kRest>(step, dim, kRows, state);
  }
  for (int m = 0; m < MT; m++) {
    const F32 inverse = Set(1.0f / state.sum[m]);
    float* out = p.out[first + m];
    ForEachVector(head_dim, [&](int i, int n) STAFFEL_INLINE_LAMBDA {
      StoreLanes(out + i, n, Mul(Load(state.out[m] + i), inverse));
    });
  }
}

// As many rows at once as the registers of the level hold, never more than `rows`.
template <int MT>
void AttentionRows(const AttentionParams& p, int first, int rows) {
  if constexpr (MT > 1) {
    if (rows < MT) return AttentionRows<MT - 1>(p, first, rows);
  }
  if constexpr (kBf16Products) {
    if (!p.exact) return AttentionTile<MT, false>(p, first);
  }
  AttentionTile<MT, true>(p, first);
}

inline void Attention(const AttentionParams& p) {
  for (int first = 0; first < p.rows; first += kRowsPerPass) {
    AttentionRows<kRowsPerPass>(p, first, Min(kRowsPerPass, p.rows - first));
  }
}

}  // namespace staffel::kernels::STAFFEL_CPU_LEVEL
