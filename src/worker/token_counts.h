// How often each token occurs in a sequence, kept as it grows: what penalties need, without looking
// at the whole sequence again. One thread.
#pragma once

#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "staffel/ids.h"

namespace staffel {

class TokenCounts {
 public:
  struct Entry {
    TokenId token = 0;
    int generated = 0;  // 0: only in the prompt
  };

  void AddPrompt(TokenId token) { Find(token); }
  void AddGenerated(TokenId token) { ++Find(token).generated; }
  // One entry for each distinct token, by first occurrence.
  absl::Span<const Entry> entries() const { return entries_; }

 private:
  Entry& Find(TokenId token) {
    auto [at, added] = index_.try_emplace(token, static_cast<int>(entries_.size()));
    if (added) entries_.push_back({token, 0});
    return entries_[at->second];
  }

  absl::flat_hash_map<TokenId, int> index_;
  std::vector<Entry> entries_;
};

}  // namespace staffel
