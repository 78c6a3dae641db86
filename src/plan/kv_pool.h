// How many KV blocks a rank's pool has. Pure.
#pragma once

#include <cstdint>

#include "staffel/status.h"

namespace staffel {

struct KvPoolRequest {
  int64_t memory_bytes = 0;        // free after the weights
  int64_t kv_bytes_per_block = 0;  // of this rank (Backend::kv_bytes_per_block)
  int block_size = 16;             // tokens
  int max_model_len = 0;           // tokens of prompt + answer
  int max_sequences = 1;           // that run together
  int64_t kv_blocks = 0;           // --kv-blocks; 0: not given; wins over the rest
  int64_t kv_memory_bytes = 0;     // --kv-memory; 0: not given
};

struct KvPoolSize {
  int block_count = 0;
  int64_t bytes = 0;
};

// Without an explicit size: room for a few full contexts and some hundred tokens of every sequence,
// but not more than half of the free memory, unless one full context needs more.
// ResourceExhausted: less than one full context (or than one block, if the size was given) fits;
// says what is needed, what there is, and which option to change.
Result<KvPoolSize> SizeKvPool(const KvPoolRequest& request);

}  // namespace staffel
