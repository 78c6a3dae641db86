#include "worker/sequence_mirror.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "base/strings.h"
#include "worker/sampler.h"

namespace staffel {
namespace {

// Slots are indices handed out densely by the master; a plan cannot make the table grow further.
constexpr int kSlotsMax = 1 << 16;

}  // namespace

void SequenceMirror::Reset(const MirrorLimits& limits) {
  limits_ = limits;
  slots_.clear();
  digest_.Reset();
  last_step_ = 0;
  pending_draws_ = 0;
}

Status SequenceMirror::Apply(const StepPlan& plan) {
  if (pending_draws_ > 0) {
    return absl::FailedPreconditionError("the tokens of the step before have not been drawn");
  }
  if (last_step_ != 0 && plan.step != last_step_ + 1) {
    return absl::DataLossError(
        StrCat("step ", plan.step, " follows step ", last_step_, "; a plan was lost or doubled"));
  }
  last_step_ = plan.step;
  for (const KnownToken& known : plan.known_tokens) STAFFEL_RETURN_IF_ERROR(TakeKnown(known));
  for (const ForcedToken& forced : plan.forced_tokens) {
    STAFFEL_RETURN_IF_ERROR(TakeForced(forced));
  }
  for (Slot slot : plan.released) {
    STAFFEL_RETURN_IF_ERROR(CheckSlot(slot, "released"));
    slots_[slot.value] = MirroredSequence();
  }
  for (const NewSequence& added : plan.new_sequences) STAFFEL_RETURN_IF_ERROR(Add(added));
  for (const BlockAppend& append : plan.block_appends) {
    STAFFEL_RETURN_IF_ERROR(AppendBlocks(append));
  }
  for (const BlockCopy& copy : plan.block_copies) {
    STAFFEL_RETURN_IF_ERROR(CheckBlock(copy.source, "source of a copy"));
    STAFFEL_RETURN_IF_ERROR(CheckBlock(copy.target, "target of a copy"));
  }
  int64_t rows = 0;
  for (const Chunk& chunk : plan.chunks) {
    STAFFEL_RETURN_IF_ERROR(AddChunk(chunk));
    rows += chunk.count;
  }
  if (rows > limits_.max_rows) {
    return absl::InvalidArgumentError(StrCat("the plan has ", rows,
                                             " rows; this worker computes at most ",
                                             limits_.max_rows, " a step"));
  }
  const uint64_t digest = digest_.Apply(plan);
  if (plan.digest != 0 && plan.digest != digest) {
    return absl::DataLossError(StrCat("the mirror's digest after step ", plan.step, " is ", digest,
                                      ", the master's ", plan.digest,
                                      "; the worker's state is not the master's"));
  }
  return absl::OkStatus();
}

void SequenceMirror::Append(Slot slot, TokenId token) {
  MirroredSequence& sequence = slots_[slot.value];
  STAFFEL_CHECK(limits_.draws_known && sequence.awaits_draw)
      << "slot " << slot << " does not sample";
  sequence.awaits_draw = false;
  --pending_draws_;
  sequence.tokens.push_back(token);
  if (UsesPenalties(sequence.sampling)) sequence.counts.AddGenerated(token);
}

Status SequenceMirror::TakeKnown(const KnownToken& known) {
  STAFFEL_RETURN_IF_ERROR(CheckSlot(known.slot, "told a token"));
  STAFFEL_RETURN_IF_ERROR(CheckTokens({known.token}, known.slot, "what is told"));
  MirroredSequence& sequence = slots_[known.slot.value];
  const int count = static_cast<int>(sequence.tokens.size());
  const auto refuse = [&](const char* why) {
    return absl::InvalidArgumentError(StrCat("the token at position ", known.position, " of slot ",
                                             known.slot.value, " is told, but ", why));
  };
  if (known.position < sequence.prompt_count) return refuse("that is the prompt's");
  if (!limits_.draws_known) {
    if (known.position < count) return refuse("it was told before");
    if (known.position > count) return refuse("not the one before it");
    if (!sequence.awaits_draw) return refuse("no chunk has drawn it");
    sequence.awaits_draw = false;
    sequence.tokens.push_back(known.token);
    return absl::OkStatus();
  }
  if (known.position >= count) return refuse("this rank does not know it");
  if (sequence.tokens[known.position] == known.token) return absl::OkStatus();
  return absl::DataLossError(StrCat("this rank has diverged: at position ", known.position,
                                    " of slot ", known.slot.value, " it knows token ",
                                    sequence.tokens[known.position], ", the others ", known.token));
}

Status SequenceMirror::TakeForced(const ForcedToken& forced) {
  STAFFEL_RETURN_IF_ERROR(CheckSlot(forced.slot, "forced to a token"));
  STAFFEL_RETURN_IF_ERROR(CheckTokens({forced.token}, forced.slot, "what is forced"));
  MirroredSequence& sequence = slots_[forced.slot.value];
  const int count = static_cast<int>(sequence.tokens.size());
  if (forced.position != count || sequence.awaits_draw) {
    return absl::InvalidArgumentError(StrCat(
        "slot ", forced.slot.value, " is forced to a token at position ", forced.position, ", but ",
        sequence.awaits_draw ? "the one before it is being drawn, behind " : "knows ", count,
        " tokens"));
  }
  sequence.tokens.push_back(forced.token);
  if (UsesPenalties(sequence.sampling)) sequence.counts.AddGenerated(forced.token);
  return absl::OkStatus();
}

Status SequenceMirror::CheckSlot(Slot slot, const char* what) const {
  if (slot.value < 0 || slot.value >= static_cast<int>(slots_.size()) || !slots_[slot.value].live) {
    return absl::FailedPreconditionError(
        StrCat("slot ", slot.value, " is ", what, ", but holds no sequence"));
  }
  return absl::OkStatus();
}

Status SequenceMirror::CheckTokens(absl::Span<const TokenId> tokens, Slot slot,
                                   const char* what) const {
  for (TokenId token : tokens) {
    if (token < 0 || token >= limits_.vocab) {
      return absl::InvalidArgumentError(StrCat(what, " of slot ", slot.value, " has the token ",
                                               token, "; the vocabulary has ", limits_.vocab));
    }
  }
  return absl::OkStatus();
}

Status SequenceMirror::CheckBans(const NewSequence& added) const {
  const std::vector<TokenId>& allowed = added.sampling.allowed_tokens;
  STAFFEL_RETURN_IF_ERROR(CheckTokens(allowed, added.slot, "the list of allowed tokens"));
  if (std::adjacent_find(allowed.begin(), allowed.end(), std::greater_equal<>()) != allowed.end()) {
    return absl::InvalidArgumentError(
        StrCat("the allowed tokens of slot ", added.slot.value, " do not ascend"));
  }
  for (const std::vector<TokenId>& sequence : added.sampling.banned_sequences) {
    STAFFEL_RETURN_IF_ERROR(CheckTokens(sequence, added.slot, "a banned sequence"));
    if (sequence.empty()) {
      return absl::InvalidArgumentError(
          StrCat("a banned sequence of slot ", added.slot.value, " has no tokens"));
    }
  }
  return absl::OkStatus();
}

Status SequenceMirror::CheckBlock(BlockId block, const char* what) const {
  if (block.value < 0 || block.value >= limits_.block_count) {
    return absl::InvalidArgumentError(StrCat("block ", block.value, ", ", what,
                                             ", is outside the pool of ", limits_.block_count));
  }
  return absl::OkStatus();
}

Status SequenceMirror::Add(const NewSequence& added) {
  const int slot = added.slot.value;
  if (slot < 0 || slot >= kSlotsMax) {
    return absl::InvalidArgumentError(
        StrCat("slot ", slot, " of a new sequence is outside [0, ", kSlotsMax, ")"));
  }
  if (slot < static_cast<int>(slots_.size()) && slots_[slot].live) {
    return absl::FailedPreconditionError(
        StrCat("slot ", slot, " of a new sequence holds another one"));
  }
  const int64_t count = static_cast<int64_t>(added.tokens.size());
  if (count == 0 || count > limits_.max_positions || added.prompt_count < 1 ||
      added.prompt_count > count) {
    return absl::InvalidArgumentError(
        StrCat("slot ", slot, " gets ", count, " tokens, ", added.prompt_count,
               " of them the prompt; there must be 1 to ", limits_.max_positions));
  }
  STAFFEL_RETURN_IF_ERROR(CheckTokens(added.tokens, added.slot, "the prompt"));
  STAFFEL_RETURN_IF_ERROR(CheckTokens(added.stop_tokens, added.slot, "the list of stop tokens"));
  for (const LogitBias& bias : added.sampling.logit_bias) {
    STAFFEL_RETURN_IF_ERROR(CheckTokens({bias.token}, added.slot, "the logit bias"));
  }
  STAFFEL_RETURN_IF_ERROR(CheckBans(added));
  if (slot >= static_cast<int>(slots_.size())) slots_.resize(slot + 1);
  MirroredSequence& sequence = slots_[slot];
  sequence.live = true;
  sequence.tokens = added.tokens;
  sequence.prompt_count = added.prompt_count;
  sequence.sequence_index = added.sequence_index;
  sequence.sampling = added.sampling;
  sequence.min_tokens = added.min_tokens;
  sequence.stop_tokens = added.stop_tokens;
  sequence.pooling = added.pooling;
  if (UsesPenalties(sequence.sampling)) {
    for (int i = 0; i < count; ++i) {
      if (i < added.prompt_count) {
        sequence.counts.AddPrompt(added.tokens[i]);
      } else {
        sequence.counts.AddGenerated(added.tokens[i]);
      }
    }
  }
  return absl::OkStatus();
}

Status SequenceMirror::AppendBlocks(const BlockAppend& append) {
  STAFFEL_RETURN_IF_ERROR(CheckSlot(append.slot, "given blocks"));
  for (BlockId block : append.blocks) {
    STAFFEL_RETURN_IF_ERROR(CheckBlock(block, "appended to a table"));
  }
  std::vector<BlockId>& table = slots_[append.slot.value].blocks;
  table.insert(table.end(), append.blocks.begin(), append.blocks.end());
  const int64_t blocks_max =
      (int64_t{limits_.max_positions} + limits_.block_size - 1) / limits_.block_size;
  if (static_cast<int64_t>(table.size()) > blocks_max) {
    return absl::InvalidArgumentError(StrCat("slot ", append.slot.value, " gets ", table.size(),
                                             " blocks; ", limits_.max_positions, " tokens need ",
                                             blocks_max));
  }
  return absl::OkStatus();
}

Status SequenceMirror::AddChunk(const Chunk& chunk) {
  STAFFEL_RETURN_IF_ERROR(CheckSlot(chunk.slot, "in a chunk"));
  MirroredSequence& sequence = slots_[chunk.slot.value];
  auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(StrCat("the chunk [", chunk.start, ", +", chunk.count,
                                             ") of slot ", chunk.slot.value, " ", why));
  };
  const int64_t known = static_cast<int64_t>(sequence.tokens.size());
  const int64_t end = int64_t{chunk.start} + chunk.count;
  if (chunk.start < 0 || chunk.count < 1) return refuse("is empty or begins before 0");
  if (end > known) return refuse(StrCat("ends beyond the ", known, " known tokens"));
  if (end > limits_.max_positions) {
    return refuse(StrCat("ends beyond the ", limits_.max_positions, " positions of a sequence"));
  }
  if (chunk.samples && end != known) {
    return refuse(StrCat("samples before the end of the ", known, " known tokens"));
  }
  if (end > static_cast<int64_t>(sequence.blocks.size()) * limits_.block_size) {
    return refuse(StrCat("is not covered by its ", sequence.blocks.size(), " blocks of ",
                         limits_.block_size));
  }
  // Only whole blocks, computed for another sequence, may be passed over.
  const bool whole_blocks =
      sequence.planned_end % limits_.block_size == 0 && chunk.start % limits_.block_size == 0;
  if (sequence.planned_end >= 0 && chunk.start > sequence.planned_end && !whole_blocks) {
    return refuse(StrCat("leaves a gap behind position ", sequence.planned_end));
  }
  if (sequence.pooling == Pooling::kMean && chunk.start != std::max(0, sequence.planned_end)) {
    return refuse(StrCat("leaves out tokens behind position ", std::max(0, sequence.planned_end),
                         ", whose hidden states the embedding needs"));
  }
  if (sequence.awaits_draw) {
    return refuse("follows one that samples, in the same step");
  }
  sequence.planned_end = static_cast<int>(end);
  sequence.awaits_draw = chunk.samples;
  pending_draws_ += chunk.samples && limits_.draws_known;
  return absl::OkStatus();
}

}  // namespace staffel
