// Shapes, and what every plan must satisfy, for the tests of plan.
#pragma once

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "staffel/placement.h"

namespace staffel {

inline ModelShape SmolLm2() {
  return {.architecture = "llama",
          .layers = 30,
          .hidden = 576,
          .q_heads = 9,
          .kv_heads = 3,
          .head_dim = 64,
          .ffn = 1536,
          .vocab = 49152,
          .context_length = 8192,
          .layer_bytes = 2 << 20,
          .embedding_bytes = 30 << 20};
}

inline ModelShape RandomShape(std::mt19937_64& random) {
  auto pick = [&](int min, int max) {
    return std::uniform_int_distribution<int>(min, max)(random);
  };
  ModelShape m;
  m.architecture = "llama";
  m.layers = pick(1, 40);
  m.kv_heads = pick(1, 8);
  m.q_heads = m.kv_heads * pick(1, 8);
  m.head_dim = 32 << pick(0, 3);
  m.hidden = pick(1, 64) * 32;
  m.ffn_granule = pick(0, 1) ? 32 : 256;
  m.ffn = m.ffn_granule * pick(1, 64);
  m.head_granule = 1 << pick(0, 2);
  if (m.q_heads % m.head_granule != 0) m.head_granule = 1;
  m.vocab = pick(1, 5000);
  return m;
}

// Every layer in one stage; within a stage every head, column and (on the last) row on one rank.
inline void CheckCover(const ModelShape& m, const PlacementPlan& plan, int tp, int pp) {
  ASSERT_EQ(plan.ranks.size(), static_cast<size_t>(tp * pp));
  ASSERT_EQ(plan.tensor_groups.size(), static_cast<size_t>(pp));
  const int group_size = m.q_heads / m.kv_heads;
  int layer = 0;
  for (int stage = 0; stage < pp; ++stage) {
    const std::vector<int>& group = plan.tensor_groups[stage];
    ASSERT_EQ(group.size(), static_cast<size_t>(tp));
    int q = 0, ffn = 0, vocab = 0;
    for (int rank : group) {
      const RankShard& s = plan.ranks[rank];
      EXPECT_EQ(s.rank, rank);
      EXPECT_EQ(s.group, group);
      EXPECT_EQ(s.stage, stage);
      EXPECT_EQ(s.layers.begin, layer);
      EXPECT_GE(s.layers.size(), 1);
      EXPECT_EQ(s.q_heads.begin, std::exchange(q, s.q_heads.end));
      EXPECT_EQ(s.ffn.begin, std::exchange(ffn, s.ffn.end));
      EXPECT_GE(s.q_heads.size(), 1);
      EXPECT_GE(s.ffn.size(), 1);
      EXPECT_EQ(s.q_heads.begin % m.head_granule, 0);
      EXPECT_EQ(s.ffn.begin % m.ffn_granule, 0);
      EXPECT_EQ(s.kv_heads.begin, s.q_heads.begin / group_size);
      EXPECT_EQ(s.kv_heads.end, (s.q_heads.end - 1) / group_size + 1);
      if (stage == pp - 1) {
        EXPECT_EQ(s.vocab.begin, std::exchange(vocab, s.vocab.end));
        EXPECT_GE(s.vocab.size(), 1);
        EXPECT_EQ(std::accumulate(s.group_vocab.begin(), s.group_vocab.end(), 0), m.vocab);
      } else {
        EXPECT_EQ(s.vocab.size(), 0);
        EXPECT_EQ(plan.ranks[s.next_rank].previous_rank, rank);
        EXPECT_EQ(plan.ranks[s.next_rank].stage, stage + 1);
      }
    }
    EXPECT_EQ(q, m.q_heads);
    EXPECT_EQ(ffn, m.ffn);
    EXPECT_EQ(vocab, stage == pp - 1 ? m.vocab : 0);
    layer = plan.ranks[group[0]].layers.end;
  }
  EXPECT_EQ(layer, m.layers);
}

}  // namespace staffel
