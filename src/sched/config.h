// Sizes and policy of the scheduler as data. Which value suits which device is for the caller.
#pragma once

#include <cstdint>

#include "base/siphash.h"
#include "staffel/status.h"

namespace staffel::sched {

// What changes with the workers of an epoch.
struct EpochSettings {
  int epoch = 0;
  int block_count = 0;
  // As in Config.
  int micro_batches = 1;
  int promised_tokens_max = 1;
  bool relay_tokens = false;
};

struct Config {
  int block_count = 0;     // KV blocks of the workers: the least of all ranks
  int block_size = 16;     // tokens of a block
  int max_model_len = 0;   // tokens of prompt + answer
  int max_sequences = 64;  // slots: sequences that are computed side by side

  // Tokens of one step. 512: at the 4000 tok/s of a small CPU a step of prefill alone lasts 1/8 s,
  // and larger batches gain nothing there.
  int tokens_per_step_max = 512;
  int chunk_tokens_max = 512;  // of one sequence in one step

  // Prefill tokens of a step while other sequences decode. Their next token waits for the whole
  // step, so the share is held to what makes a step `step_stretch_percent` of a step of decodes
  // alone, by measured times; until there are measurements, and with step_stretch_percent = 0, it
  // is `prefill_beside_decodes`.
  int prefill_beside_decodes = 32;
  int prefill_beside_decodes_min = 16;
  int step_stretch_percent = 400;
  // Kept for prefill in every step, however many sequences decode.
  int prefill_reserve_tokens = 16;

  // Rows of prompt log-probabilities in one step. Each needs logits of the whole vocabulary (1 MB
  // where it has 262144 tokens), so the workers' room for them is bounded; see LogitRowsMax.
  int prompt_logprob_rows_max = 64;

  // Of a step's prefill tokens the oldest request gets this share, so that it never starves; the
  // rest goes to the requests with the least left to compute, so that short ones are not stuck
  // behind long ones.
  int oldest_share_percent = 50;
  // A request that waits for blocks may be overtaken by that many smaller ones; then all wait for
  // it.
  int overtakes_max = 64;

  // Tokens of one sequence that are being drawn, not yet known here: 1 waits for each, more plans
  // ahead of them.
  int promised_tokens_max = 1;

  // Steps that are to be in flight at a time, so that each stage of a pipeline has one: of n
  // sequences that decode a step takes n / micro_batches at most, and prefill is cut likewise, but
  // not below micro_batch_tokens_min (beside decodes prefill_beside_decodes_min), where a step
  // costs as much as reading the weights. 1: a step takes all that is ready.
  int micro_batches = 1;
  int micro_batch_tokens_min = 64;

  // Plans tell the workers what was drawn: needed where some ranks do not sample (several stages),
  // and a check of the ranks' agreement where all do.
  bool relay_tokens = false;

  // Of the first plans; BeginEpoch's are greater.
  int first_epoch = 1;

  bool prefix_caching = true;
  Hash128 hash_key = {0x9ae16a3b2f90404fu,
                      0xc949d7c7509e6557u};  // of the prefix index; any value, secret or not

  // Rows of logits that a step asks for at most: the room workers need (max_sampled_rows).
  int LogitRowsMax() const { return max_sequences + prompt_logprob_rows_max; }

  // InvalidArgument names the value that cannot be.
  Status Validate() const;
};

}  // namespace staffel::sched
