// The merge loop that byte-level BPE and SentencePiece's BPE share: as long as two neighbours can
// merge, merge the pair of the best rank, the leftmost of equal ones (Sennrich et al. 2016).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace staffel {

struct MergeSymbol {
  int32_t id = -1;      // the family's own number for the symbol
  uint32_t begin = 0;   // first byte in the text
  uint32_t length = 0;  // bytes
};

struct Merge {
  static constexpr uint32_t kNone = UINT32_MAX;
  uint32_t rank = kNone;  // smaller is better
  int32_t product = -1;   // id of the merged symbol
};

namespace internal {

// Smallest first. What is put in ascending order, as a long run of one letter does, costs no
// sifting: a full heap becomes a sorted list that is read from the front.
class MergeQueue {
 public:
  void Clear() {
    heap_.clear();
    sorted_.clear();
    read_ = 0;
  }
  void Push(uint64_t entry) {
    heap_.push_back(entry);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }
  bool Pop(uint64_t* entry) {
    constexpr size_t kWorthSorting = 64;
    if (read_ == sorted_.size() && heap_.size() >= kWorthSorting) {
      sorted_.swap(heap_);
      if (!std::is_sorted(sorted_.begin(), sorted_.end()))
        std::sort(sorted_.begin(), sorted_.end());
      heap_.clear();
      read_ = 0;
    }
    if (read_ < sorted_.size() && (heap_.empty() || sorted_[read_] <= heap_.front())) {
      *entry = sorted_[read_++];
      return true;
    }
    if (heap_.empty()) return false;
    *entry = heap_.front();
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    heap_.pop_back();
    return true;
  }

 private:
  std::vector<uint64_t> heap_, sorted_;
  size_t read_ = 0;  // of sorted_
};

}  // namespace internal

// Buffers that are kept from word to word.
struct MergeScratch {
  std::vector<Merge> candidates;
  internal::MergeQueue queue;
  std::vector<uint32_t> previous, next;
};

namespace internal {

// Quadratic in the number of symbols, and the faster one for words.
template <class FindMerge>
void MergeWord(std::vector<MergeSymbol>& symbols, MergeScratch& scratch, const FindMerge& find) {
  std::vector<Merge>& candidates = scratch.candidates;  // [i]: of symbols i and i + 1
  candidates.clear();
  for (size_t i = 0; i + 1 < symbols.size(); i++) {
    candidates.push_back(find(symbols[i], symbols[i + 1]));
  }
  while (!candidates.empty()) {
    size_t best = 0;
    for (size_t i = 1; i < candidates.size(); i++) {
      if (candidates[i].rank < candidates[best].rank) best = i;
    }
    if (candidates[best].rank == Merge::kNone) return;
    symbols[best].id = candidates[best].product;
    symbols[best].length += symbols[best + 1].length;
    symbols.erase(symbols.begin() + best + 1);
    candidates.erase(candidates.begin() + best);
    if (best > 0) candidates[best - 1] = find(symbols[best - 1], symbols[best]);
    if (best < candidates.size()) candidates[best] = find(symbols[best], symbols[best + 1]);
  }
}

// n log n, by a queue of (rank, left symbol) over a linked list. An entry is stale when the pair at
// its place has another rank by now; if it has the same one, it is due at the same turn.
template <class FindMerge>
void MergeLong(std::vector<MergeSymbol>& symbols, MergeScratch& scratch, const FindMerge& find) {
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  std::vector<Merge>& candidates = scratch.candidates;
  MergeQueue& queue = scratch.queue;
  std::vector<uint32_t>&previous = scratch.previous, &next = scratch.next;
  candidates.assign(count, Merge());
  previous.resize(count);
  next.resize(count);
  queue.Clear();
  for (uint32_t i = 0; i < count; i++) {
    previous[i] = i - 1;
    next[i] = i + 1;
    if (i + 1 == count) break;
    candidates[i] = find(symbols[i], symbols[i + 1]);
    if (candidates[i].rank != Merge::kNone) queue.Push(uint64_t{candidates[i].rank} << 32 | i);
  }
  const auto renew = [&](uint32_t left) {
    candidates[left] = next[left] < count ? find(symbols[left], symbols[next[left]]) : Merge();
    if (candidates[left].rank == Merge::kNone) return;
    queue.Push(uint64_t{candidates[left].rank} << 32 | left);
  };
  for (uint64_t entry; queue.Pop(&entry);) {
    const uint32_t left = static_cast<uint32_t>(entry);
    if (candidates[left].rank != entry >> 32) continue;
    const uint32_t right = next[left];
    symbols[left].id = candidates[left].product;
    symbols[left].length += symbols[right].length;
    symbols[right].length = 0;
    candidates[right] = Merge();
    next[left] = next[right];
    if (next[left] < count) previous[next[left]] = left;
    if (left > 0) renew(previous[left]);
    renew(left);
  }
  std::erase_if(symbols, [](const MergeSymbol& symbol) { return symbol.length == 0; });
}

}  // namespace internal

// Merges symbols (neighbours in the text, each of at least one byte) in place. `find` gives the
// Merge of two neighbours, always the same for the same pair.
template <class FindMerge>
void MergeSymbols(std::vector<MergeSymbol>& symbols, MergeScratch& scratch, const FindMerge& find) {
  // Anything from 24 to 192 encodes Chinese text, with its long words, equally fast.
  constexpr size_t kWordSymbolsMax = 48;
  if (symbols.size() <= kWordSymbolsMax) {
    internal::MergeWord(symbols, scratch, find);
  } else {
    internal::MergeLong(symbols, scratch, find);
  }
}

}  // namespace staffel
