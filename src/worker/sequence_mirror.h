// The workers' copy of what the master knows of its sequences: StepPlans are deltas on it. Every
// number of a plan is checked before it is used: a bad plan is an error, never a bad access.
// Owned by a worker; one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "base/digest.h"
#include "staffel/ids.h"
#include "staffel/request.h"
#include "staffel/status.h"
#include "staffel/step.h"
#include "worker/token_counts.h"

namespace staffel {

// What bounds the numbers of a plan; the worker's memory was sized by the same.
struct MirrorLimits {
  int vocab = 0;
  int block_size = 16;  // tokens
  int block_count = 0;
  int max_rows = 0;          // of a step
  int max_sampled_rows = 0;  // of a step
  int max_positions = 0;     // of a sequence
  // Whether this rank learns at the end of a step what was drawn. If not, plans tell it before they
  // compute it.
  bool draws_known = true;
};

struct MirroredSequence {
  bool live = false;
  std::vector<TokenId> tokens;  // known: given, and drawn, told or forced since
  std::vector<BlockId> blocks;  // its table
  int prompt_count = 0;
  int sequence_index = 0;
  int planned_end = -1;      // end of the last chunk; -1: none yet
  bool awaits_draw = false;  // its last chunk samples, and the token has not come
  SamplingParams sampling;
  int min_tokens = 0;
  std::vector<TokenId> stop_tokens;
  Pooling pooling = Pooling::kNone;
  std::vector<float> pool;  // see PoolOf
  TokenCounts counts;  // kept only if the sampling uses penalties

  int generated_count() const { return static_cast<int>(tokens.size()) - prompt_count; }
};

class SequenceMirror {
 public:
  // Empties the mirror: the state before the first plan of an epoch.
  void Reset(const MirrorLimits& limits);

  // Applies a plan in the order that step.h gives. InvalidArgument or FailedPrecondition names the
  // slot and what is wrong; DataLoss: the digest differs, or a token that this rank knows is
  // not the one that was told, so master and worker disagree about the past. After an error the
  // mirror is of no use until Reset.
  Status Apply(const StepPlan& plan);

  // A chunk that samples has drawn its token. Only where limits.draws_known.
  void Append(Slot slot, TokenId token);

  // Where the worker adds up hidden states for Pooling::kMean; empty at first.
  std::vector<float>& PoolOf(Slot slot) { return slots_[slot.value].pool; }

  // The plan that was applied may name it.
  const MirroredSequence& sequence(Slot slot) const { return slots_[slot.value]; }

 private:
  Status CheckSlot(Slot slot, const char* what) const;
  Status CheckTokens(absl::Span<const TokenId> tokens, Slot slot, const char* what) const;
  Status CheckBans(const NewSequence& added) const;
  Status CheckBlock(BlockId block, const char* what) const;
  Status TakeKnown(const KnownToken& known);
  Status TakeForced(const ForcedToken& forced);
  Status Add(const NewSequence& added);
  Status AppendBlocks(const BlockAppend& append);
  Status AddChunk(const Chunk& chunk);

  MirrorLimits limits_;
  std::vector<MirroredSequence> slots_;
  MirrorDigest digest_;
  uint64_t last_step_ = 0;  // 0: none in this epoch
  int pending_draws_ = 0;   // sequences whose draw this rank is to learn
};

}  // namespace staffel
