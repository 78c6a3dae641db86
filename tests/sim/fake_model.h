// The simulation's model: what a position means is a hash of all tokens up to it, what is drawn
// there a hash of that. So the right text of every request is known in advance, and any wrong,
// stale or foreign KV cell on the way changes it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/digest.h"
#include "staffel/request.h"

namespace staffel::sim {

inline constexpr int kVocabSize = 40;
inline constexpr uint64_t kEmptyPrefix = 0x51ed;

// Hash of the tokens up to and with `token`, from that of the tokens before it.
inline uint64_t ExtendPrefix(uint64_t prefix, TokenId token) {
  return MixDigest(prefix, static_cast<uint64_t>(token) + 1);
}

// The token drawn after a prefix. While `ban_stops`, stop tokens are not drawn.
inline TokenId DrawToken(uint64_t prefix, uint64_t seed, int index, bool ban_stops,
                         const std::vector<TokenId>& stop_tokens) {
  auto token = static_cast<TokenId>(MixDigest(prefix, seed * 64 + index) % kVocabSize);
  while (ban_stops &&
         std::find(stop_tokens.begin(), stop_tokens.end(), token) != stop_tokens.end()) {
    token = (token + 1) % kVocabSize;
  }
  return token;
}

// How many of the tokens that follow a prefix a grammar tells ahead.
inline int ForcedAfter(uint64_t prefix) {
  const uint64_t hash = MixDigest(prefix, 0xf0);
  return hash % 3 == 0 ? static_cast<int>(hash / 3 % 9) : 0;
}

inline float PromptLogprobOf(uint64_t prefix, TokenId next) {
  return -static_cast<float>(MixDigest(prefix, static_cast<uint64_t>(next)) % 4096) / 256.0f;
}

// What embeddings are made of: whole numbers, so that their sums are exact.
inline float HiddenOf(uint64_t prefix) { return static_cast<float>(prefix % 1024); }

// splitmix64: the same worlds on every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int Between(int low, int high) {  // both included
    return low + static_cast<int>(Next() % static_cast<uint64_t>(high - low + 1));
  }
  bool Percent(int percent) { return Between(0, 99) < percent; }

 private:
  uint64_t state_;
};

}  // namespace staffel::sim
