#include "sched/block_manager.h"

#include <algorithm>

#include "base/check.h"
#include "sched/mutation.h"

namespace staffel::sched {
namespace {

Hash128 Weaken(Hash128 hash) {
  const int bits = WeakHashBits();
  return bits < 0 ? hash : Hash128{hash.low & ((uint64_t{1} << (bits & 63)) - 1), 0};
}

}  // namespace

Hash128 RootKey(Hash128 key, const std::string& salt) {
  if (IsMutant(Mutant::kIgnoreSalt)) return SipHash128(key, nullptr, 0);
  return SipHash128(key, salt.data(), salt.size());
}

// The parent is the hash's key: chained, and a block's bytes are hashed once.
Hash128 ChainKey(Hash128 key, Hash128 parent, absl::Span<const TokenId> tokens) {
  const Hash128 mixed{key.low ^ parent.low, key.high ^ parent.high};
  return Weaken(SipHash128(mixed, tokens.data(), tokens.size() * sizeof(TokenId)));
}

BlockManager::BlockManager(int block_count, int block_size) : block_size_(block_size) {
  Reset(block_count);
}

void BlockManager::Reset(int block_count) {
  for (const Block& block : blocks_) STAFFEL_CHECK_EQ(block.references, 0);
  if (IsMutant(Mutant::kKeepCacheOverEpochs) && block_count == total()) return;
  blocks_.assign(block_count, {});
  tokens_.assign(static_cast<size_t>(block_count) * block_size_, 0);
  blank_.resize(block_count);
  for (int i = 0; i < block_count; ++i) blank_[i] = block_count - 1 - i;
  oldest_ = newest_ = -1;
  cached_count_ = 0;
  index_.clear();
}

BlockId BlockManager::Allocate() {
  int32_t block;
  if (!blank_.empty()) {
    block = blank_.back();
    blank_.pop_back();
  } else {
    STAFFEL_CHECK_GE(oldest_, 0) << "allocation without a free block";
    block = oldest_;
    Unlink(block);
    Forget(block);
  }
  if (!IsMutant(Mutant::kEvictPinned)) STAFFEL_CHECK_EQ(blocks_[block].references, 0);
  ++blocks_[block].references;
  return BlockId(block);
}

void BlockManager::Reference(BlockId id) {
  Block& block = blocks_[id.value];
  if (block.references++ == 0) {
    STAFFEL_CHECK(block.in_list) << "block " << id << " is referenced without content";
    if (IsMutant(Mutant::kEvictPinned)) return;
    Unlink(id.value);
  }
}

void BlockManager::Release(BlockId id) {
  Block& block = blocks_[id.value];
  STAFFEL_CHECK_GT(block.references, 0) << "block " << id << " is released too often";
  if (--block.references > 0) return;
  if (block.content == kRootContent) {
    blank_.push_back(id.value);
  } else {
    if (block.in_list) Unlink(id.value);
    Append(id.value);
  }
}

std::optional<BlockManager::Found> BlockManager::Find(Hash128 key, ContentId parent,
                                                      absl::Span<const TokenId> tokens,
                                                      const std::string& salt) const {
  const auto it = index_.find(key);
  if (it == index_.end()) return std::nullopt;
  if (!IsMutant(Mutant::kTrustHash) && !Holds(it->second, parent, tokens, salt)) {
    return std::nullopt;
  }
  return Found{BlockId(it->second), blocks_[it->second].content};
}

ContentId BlockManager::Publish(BlockId id, Hash128 key, ContentId parent,
                                absl::Span<const TokenId> tokens, const std::string& salt) {
  Block& block = blocks_[id.value];
  STAFFEL_CHECK_GT(block.references, 0);
  STAFFEL_CHECK_EQ(block.content, kRootContent) << "block " << id << " is published twice";
  const auto [it, inserted] = index_.try_emplace(key, id.value);
  if (!inserted) {
    const int32_t present = it->second;
    if (Holds(present, parent, tokens, salt)) return blocks_[present].content;
    // An orphan whose parent was evicted, or another content with the same hash: the younger stays.
    if (blocks_[present].in_list) {
      Unlink(present);
      blank_.push_back(present);
    }
    blocks_[present].content = kRootContent;
    it->second = id.value;
  }
  block.content = next_content_++;
  block.parent = parent;
  block.key = key;
  if (parent == kRootContent) block.salt = salt;
  std::copy(tokens.begin(), tokens.end(), TokensOf(id.value).begin());
  return block.content;
}

absl::Span<TokenId> BlockManager::TokensOf(int32_t block) {
  return absl::MakeSpan(tokens_).subspan(static_cast<size_t>(block) * block_size_, block_size_);
}

bool BlockManager::Holds(int32_t index, ContentId parent, absl::Span<const TokenId> tokens,
                         const std::string& salt) const {
  const Block& block = blocks_[index];
  if (block.parent != parent) return false;
  if (parent == kRootContent && block.salt != salt && !IsMutant(Mutant::kIgnoreSalt)) return false;
  return std::equal(tokens.begin(), tokens.end(),
                    tokens_.begin() + static_cast<ptrdiff_t>(index) * block_size_);
}

void BlockManager::Append(int32_t index) {
  Block& block = blocks_[index];
  block.older = newest_;
  block.newer = -1;
  (newest_ < 0 ? oldest_ : blocks_[newest_].newer) = index;
  newest_ = index;
  block.in_list = true;
  ++cached_count_;
}

void BlockManager::Unlink(int32_t index) {
  Block& block = blocks_[index];
  (block.older < 0 ? oldest_ : blocks_[block.older].newer) = block.newer;
  (block.newer < 0 ? newest_ : blocks_[block.newer].older) = block.older;
  block.older = block.newer = -1;
  block.in_list = false;
  --cached_count_;
}

void BlockManager::Forget(int32_t index) {
  index_.erase(blocks_[index].key);
  blocks_[index].content = kRootContent;
}

void BlockManager::CheckInvariants(absl::Span<const int> references) const {
  STAFFEL_CHECK_EQ(references.size(), blocks_.size());
  int owned = 0, cached = 0, published = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const Block& block = blocks_[i];
    STAFFEL_CHECK_EQ(block.references, references[i]) << "references of block " << i;
    owned += block.references > 0;
    published += block.content != kRootContent;
    STAFFEL_CHECK_EQ(block.in_list, block.references == 0 && block.content != kRootContent)
        << "block " << i << " in the list of cached blocks";
    if (block.content != kRootContent) {
      const auto it = index_.find(block.key);
      STAFFEL_CHECK(it != index_.end() && it->second == static_cast<int32_t>(i))
          << "block " << i << " is published but not in the index";
    }
  }
  for (int32_t i = oldest_; i >= 0; i = blocks_[i].newer) ++cached;
  STAFFEL_CHECK_EQ(cached, cached_count_);
  STAFFEL_CHECK_EQ(published, static_cast<int>(index_.size()));
  STAFFEL_CHECK_EQ(blank_count() + cached + owned, total()) << "blank + cached + owned";
}

}  // namespace staffel::sched
