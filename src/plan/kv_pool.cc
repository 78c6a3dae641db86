#include "plan/kv_pool.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/strings.h"

namespace staffel {
namespace {

// Contexts and tokens a sequence that the default aims at: chats are short, prefix blocks are worth
// keeping, and memory that is taken is gone for others.
constexpr int64_t kFullContexts = 4;
constexpr int64_t kTokensPerSequence = 512;
// Block ids are 32 bits.
constexpr int64_t kBlocksMax = std::numeric_limits<int32_t>::max();

std::string Mib(int64_t bytes) { return StrCat((bytes + (1 << 20) - 1) >> 20, " MiB"); }

Result<KvPoolSize> Sized(const KvPoolRequest& r, int64_t blocks) {
  blocks = std::min(blocks, kBlocksMax);
  return KvPoolSize{static_cast<int>(blocks), blocks * r.kv_bytes_per_block};
}

}  // namespace

Result<KvPoolSize> SizeKvPool(const KvPoolRequest& r) {
  STAFFEL_CHECK(r.kv_bytes_per_block > 0 && r.block_size > 0 && r.max_sequences > 0);
  if (r.max_model_len <= 0 || r.kv_blocks < 0 || r.kv_memory_bytes < 0) {
    return absl::InvalidArgumentError(StrCat("--max-model-len ", r.max_model_len, ", --kv-blocks ",
                                             r.kv_blocks, " and --kv-memory ", r.kv_memory_bytes,
                                             " must not be negative, nor the length 0"));
  }
  const int64_t free_blocks = std::max<int64_t>(r.memory_bytes, 0) / r.kv_bytes_per_block;
  if (r.kv_blocks > 0) {
    if (r.kv_blocks > free_blocks) {
      return absl::ResourceExhaustedError(
          StrCat("--kv-blocks ", r.kv_blocks, " of ", r.kv_bytes_per_block,
                 " bytes exceeds the free memory of ", Mib(r.memory_bytes), "; at most ",
                 free_blocks, " blocks fit"));
    }
    return Sized(r, r.kv_blocks);
  }
  if (r.kv_memory_bytes > 0) {
    if (r.kv_memory_bytes > r.memory_bytes || r.kv_memory_bytes < r.kv_bytes_per_block) {
      return absl::ResourceExhaustedError(
          StrCat("--kv-memory ", r.kv_memory_bytes, " must be at least the ", r.kv_bytes_per_block,
                 " bytes of one block and at most the free memory of ", r.memory_bytes, " bytes"));
    }
    return Sized(r, r.kv_memory_bytes / r.kv_bytes_per_block);
  }
  const int64_t context_blocks = (int64_t{r.max_model_len} + r.block_size - 1) / r.block_size;
  if (context_blocks > free_blocks) {
    return absl::ResourceExhaustedError(StrCat(
        "one context of ", r.max_model_len, " tokens needs ",
        Mib(context_blocks * r.kv_bytes_per_block), " of KV memory, but ", Mib(r.memory_bytes),
        " are free; lower --max-model-len (", free_blocks * r.block_size, " tokens fit)"));
  }
  const int64_t sequence_blocks =
      std::min(context_blocks, (kTokensPerSequence + r.block_size - 1) / r.block_size);
  int64_t wanted = std::max(context_blocks * std::min<int64_t>(kFullContexts, r.max_sequences),
                            sequence_blocks * r.max_sequences);
  return Sized(r, std::max(context_blocks, std::min(wanted, free_blocks / 2)));
}

}  // namespace staffel
