// KV blocks: who refers to each, and which hold a known prefix. Numbers only; the storage is on the
// workers. A block is blank (nobody refers to it, no known content), cached (nobody refers to it,
// content can be found) or owned (reference count > 0; may be found as well). blank + cached +
// owned = total, always. Pure, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "base/siphash.h"
#include "staffel/ids.h"

namespace staffel::sched {

// Names one published content: block_size tokens after a certain parent. Never reused, so a child
// whose parent was evicted cannot be found through another block that took the parent's place.
using ContentId = uint64_t;
inline constexpr ContentId kRootContent = 0;  // the parent of a prompt's first block

// Hash of block `tokens` after `parent` (for the first block: RootKey of the salt).
Hash128 RootKey(Hash128 key, const std::string& salt);
Hash128 ChainKey(Hash128 key, Hash128 parent, absl::Span<const TokenId> tokens);

class BlockManager {
 public:
  struct Found {
    BlockId block;
    ContentId content;
  };

  BlockManager(int block_count, int block_size);

  int blank_count() const { return static_cast<int>(blank_.size()); }
  int cached_count() const { return cached_count_; }
  int free_count() const { return blank_count() + cached_count_; }
  int owned_count() const { return total() - free_count(); }
  int total() const { return static_cast<int>(blocks_.size()); }
  int references(BlockId block) const { return blocks_[block.value].references; }

  // A block with one reference; blank ones first, else the least recently used cached one loses its
  // content. free_count() must be > 0.
  BlockId Allocate();
  void Reference(BlockId block);
  // The last reference gone, a published block becomes the most recently used cached one, another
  // one blank. Tables are given back from their end, so that children are evicted before their
  // parents.
  void Release(BlockId block);

  // The block that holds `tokens` after `parent`, if any: `key` is only where to look, tokens,
  // parent and (for first blocks) salt are compared. It must be referenced before the next
  // Allocate.
  std::optional<Found> Find(Hash128 key, ContentId parent, absl::Span<const TokenId> tokens,
                            const std::string& salt) const;
  // Makes an owned block's content known, once all ranks have computed it. Returns the content's
  // id: of a block that already holds the same, else of this one.
  ContentId Publish(BlockId block, Hash128 key, ContentId parent, absl::Span<const TokenId> tokens,
                    const std::string& salt);

  // New storage: all blocks blank. Nobody may refer to any.
  void Reset(int block_count);
  // The books agree with themselves, and with `references`: how often each block is referred to.
  void CheckInvariants(absl::Span<const int> references) const;

 private:
  struct Block {
    int references = 0;
    ContentId content = kRootContent;  // kRootContent: not published
    ContentId parent = kRootContent;
    Hash128 key;
    std::string salt;                // of first blocks
    int32_t older = -1, newer = -1;  // neighbours in the list of cached blocks
    bool in_list = false;
  };
  absl::Span<TokenId> TokensOf(int32_t block);
  bool Holds(int32_t block, ContentId parent, absl::Span<const TokenId> tokens,
             const std::string& salt) const;
  void Append(int32_t block);  // to the list of cached blocks, as the most recently used
  void Unlink(int32_t block);
  void Forget(int32_t block);  // its content

  int block_size_;
  std::vector<Block> blocks_;
  std::vector<TokenId> tokens_;  // [total, block_size], of published blocks
  std::vector<int32_t> blank_;   // a stack
  int32_t oldest_ = -1, newest_ = -1;
  int cached_count_ = 0;
  ContentId next_content_ = kRootContent + 1;
  absl::flat_hash_map<Hash128, int32_t> index_;
};

}  // namespace staffel::sched
