// What the master tells the workers for one step, and what they answer. A StepPlan is a delta on
// the workers' sequence mirror: a decode step costs a few bytes a sequence. All ranks get the same
// plan.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "staffel/ids.h"
#include "staffel/request.h"

namespace staffel {

// A token that an outcome has told, for ranks that do not sample (all but those of the last stage):
// they append it. It is in the plan that computes it, or an earlier one. Ranks that sample have
// drawn it themselves and check that it is the same.
struct KnownToken {
  Slot slot;
  int position = 0;  // in the sequence, that of the prompt's first token being 0
  TokenId token = 0;
};

// A token that nobody draws, because the sequence's grammar leaves no choice: all ranks append it
// behind the last token they know. It is in the plan that computes it, or an earlier one.
struct ForcedToken {
  Slot slot;
  int position = 0;  // in the sequence
  TokenId token = 0;
};

// A sequence enters the mirror. Slots are reused only after a plan has released them.
struct NewSequence {
  Slot slot;
  std::vector<TokenId>
      tokens;              // all that are known: prompt and, after a preemption, what was generated
  int prompt_count = 0;    // tokens[0, prompt_count) is the request's prompt
  int sequence_index = 0;  // i of n
  SamplingParams sampling;
  // Stop tokens are banned for the draw while fewer than min_tokens are generated.
  int min_tokens = 0;
  std::vector<TokenId> stop_tokens;
  // Not kNone: the step that computes the prompt's last token reports the prompt's embedding. With
  // kMean every token of the prompt is computed while the sequence has this slot.
  Pooling pooling = Pooling::kNone;
};

// Blocks are appended to a sequence's table.
struct BlockAppend {
  Slot slot;
  std::vector<BlockId> blocks;
};

// Copy of a whole block before this step's writes (a shared block that is about to be written).
struct BlockCopy {
  BlockId source, target;
};

// Tokens [start, start + count) of a sequence are computed in this step. `start` is the end of its
// last chunk, or later: positions between were found computed in blocks appended by this plan.
// Where all ranks sample, a later plan may rely on the token that an earlier one samples before its
// outcome is known.
struct Chunk {
  Slot slot;
  int start = 0;
  int count = 0;
  bool samples = false;  // the last row draws token start + count; the mirror appends it
  // Rows p < prompt_count - 1 report the log-probability of token p + 1.
  bool prompt_logprobs = false;
};

// Applied in this order: known_tokens, forced_tokens, released, new_sequences, block_appends,
// block_copies, chunks.
struct StepPlan {
  int epoch = 0;      // placement this plan is for; workers drop others
  uint64_t step = 0;  // 1, 2, 3, ...
  std::vector<KnownToken> known_tokens;
  std::vector<ForcedToken> forced_tokens;  // of a sequence none of whose draws is in flight
  std::vector<Slot> released;
  std::vector<NewSequence> new_sequences;
  std::vector<BlockAppend> block_appends;
  std::vector<BlockCopy> block_copies;
  std::vector<Chunk> chunks;  // ordered: decode chunks (count 1) first
  uint64_t digest = 0;  // of the mirror after applying: MirrorDigest in base/digest.h; 0: unchecked
};

struct SampledToken {
  Slot slot;
  GeneratedToken token;
  // Not OK: nothing could be drawn (NaN logits); token is 0, on the worker's mirror too, and the
  // sequence ends with kError. The step itself and its other sequences are fine.
  Status error;
  // What the sequence's grammar wants behind `token`, in this order. If the plans in flight draw
  // on, they draw these; else the master may take them as known (ForcedToken).
  std::vector<TokenId> forced;
  // The grammar allows nothing but stop tokens: `token` ends the sequence before min_tokens, too.
  bool complete = false;
};

struct PromptLogprobs {
  Slot slot;
  int start = 0;  // entry i speaks of token start + i + 1
  std::vector<PromptLogprob> entries;
};

struct Embedding {
  Slot slot;
  std::vector<float> values;  // [hidden]
};

struct StepOutcome {
  int epoch = 0;
  uint64_t step = 0;
  Status status;  // not OK: the step failed and the epoch with it
  // Of the ranks that sample; others leave them empty.
  std::vector<SampledToken> sampled;  // in the order of the plan's chunks that sample
  std::vector<PromptLogprobs> prompt_logprobs;
  std::vector<Embedding> embeddings;  // in the order of the chunks that end a prompt that pools
  double compute_s = 0;  // time in the worker that answers, less its waits for other ranks
};

}  // namespace staffel
