// Outcomes of steps: tokens, ends, blocks that become known, forks.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "sched/mutation.h"
#include "sched/scheduler.h"

namespace staffel::sched {

bool Scheduler::IsCurrent(const StepOutcome& outcome) const {
  return outcome.epoch == epoch_ || IsMutant(Mutant::kAcceptOldEpoch);
}

Status Scheduler::Apply(StepOutcome outcome, std::vector<SeqEvent>& events) {
  if (ledger_.empty() || outcome.step != ledger_.front().step) {
    return absl::InternalError(
        StrCat("a worker answers step ", outcome.step, ", but ",
               ledger_.empty() ? "none is" : StrCat(ledger_.front().step, " is the oldest"),
               " in flight"));
  }
  STAFFEL_RETURN_IF_ERROR(CheckOutcome(ledger_.front(), outcome));
  const LedgerEntry entry = std::move(ledger_.front());
  ledger_.pop_front();
  costs_.Observe(entry.decodes, entry.prefill_tokens, outcome.compute_s);
  for (BlockId block : entry.copy_sources) blocks_.Release(block);
  TakePromptLogprobs(entry, outcome);
  auto sampled = outcome.sampled.begin();
  auto embedding = outcome.embeddings.begin();
  for (const PlannedChunk& chunk : entry.chunks) {
    if (chunk.pools) chunk.sequence->request->embedding = std::move(embedding++->values);
    ApplyChunk(chunk, chunk.samples ? &*sampled++ : nullptr, events);
  }
  return absl::OkStatus();
}

Status Scheduler::CheckOutcome(const LedgerEntry& entry, const StepOutcome& outcome) const {
  const auto refuse = [&](const auto&... pieces) {
    return absl::InternalError(StrCat("the outcome of step ", entry.step, " ", pieces...));
  };
  size_t sampled = 0, logprobs = 0, embeddings = 0;
  for (const PlannedChunk& chunk : entry.chunks) {
    const Slot slot = chunk.sequence->slot;
    if (chunk.samples) {
      if (sampled == outcome.sampled.size()) return refuse("lacks drawn tokens");
      if (!IsMutant(Mutant::kReuseSlotInFlight) && outcome.sampled[sampled].slot != slot) {
        return refuse("has a token of slot ", outcome.sampled[sampled].slot.value, " where slot ",
                      slot.value, " was asked");
      }
      ++sampled;
    }
    if (chunk.pools) {
      if (embeddings == outcome.embeddings.size() || outcome.embeddings[embeddings].slot != slot ||
          outcome.embeddings[embeddings].values.empty()) {
        return refuse("lacks the embedding of slot ", slot.value);
      }
      ++embeddings;
    }
    const int owed = std::min(chunk.count, chunk.sequence->prompt_count - 1 - chunk.start);
    if (chunk.prompt_logprobs && owed > 0) {
      if (logprobs == outcome.prompt_logprobs.size())
        return refuse("lacks prompt log-probabilities");
      const PromptLogprobs& given = outcome.prompt_logprobs[logprobs++];
      if (given.slot != slot || given.start != chunk.start ||
          static_cast<int>(given.entries.size()) < owed) {
        return refuse("has prompt log-probabilities of slot ", given.slot.value, " from ",
                      given.start, " where slot ", slot.value, " from ", chunk.start, " owes ",
                      owed);
      }
    }
  }
  if (sampled != outcome.sampled.size()) return refuse("has more drawn tokens than were asked");
  if (embeddings != outcome.embeddings.size()) {
    return refuse("has more embeddings than were asked");
  }
  return absl::OkStatus();
}

void Scheduler::TakePromptLogprobs(const LedgerEntry& entry, StepOutcome& outcome) {
  auto given = outcome.prompt_logprobs.begin();
  for (const PlannedChunk& chunk : entry.chunks) {
    const int owed = std::min(chunk.count, chunk.sequence->prompt_count - 1 - chunk.start);
    if (!chunk.prompt_logprobs || owed <= 0) continue;
    std::vector<PromptLogprob>& received = chunk.sequence->request->prompt_logprobs;
    // A recomputed part was received already.
    const int skip = static_cast<int>(received.size()) - chunk.start;
    STAFFEL_CHECK(skip >= 0 || IsMutant(Mutant::kSkipOwedLogprobs));
    for (int i = std::max(0, skip); i < owed; ++i) received.push_back(std::move(given->entries[i]));
    ++given;
  }
}

void Scheduler::ApplyChunk(const PlannedChunk& chunk, SampledToken* sampled,
                           std::vector<SeqEvent>& events) {
  Sequence* sequence = chunk.sequence;
  if (chunk.samples) --sequence->promised;
  if (!IsMutant(Mutant::kFreeBlocksInFlight) || sequence->HoldsBlocks()) {
    sequence->computed = std::max(sequence->computed, chunk.start + chunk.count);
    if (IsMutant(Mutant::kComputedOffByOne)) ++sequence->computed;
    Publish(sequence);
  }
  if (sequence->request->leader == sequence && sequence->computed >= sequence->prompt_count) {
    PromptComputed(sequence, events);
  }
  if (sampled != nullptr && sequence->state != SequenceState::kEnded) {
    TakeToken(sequence, *sampled, events);
  }
  LeaveStep(sequence, events);
}

// Full blocks whose tokens are all computed can be found from now on.
void Scheduler::Publish(Sequence* sequence) {
  if (!config_.prefix_caching) return;
  const int tokens = std::min(sequence->computed, static_cast<int>(sequence->tokens.size()));
  const int end_block =
      std::min(tokens / config_.block_size, static_cast<int>(sequence->blocks.size()));
  ExtendKeys(sequence, end_block);
  for (int block = static_cast<int>(sequence->contents.size()); block < end_block; ++block) {
    const ContentId parent = block == 0 ? kRootContent : sequence->contents[block - 1];
    sequence->contents.push_back(blocks_.Publish(sequence->blocks[block], sequence->keys[block],
                                                 parent, TokensOfBlock(*sequence, block),
                                                 sequence->request->spec.cache_salt));
    if (block < sequence->claims_begin || block >= sequence->claims_end) continue;
    const auto it = claims_.find(sequence->keys[block]);
    if (it != claims_.end() && it->second == sequence) claims_.erase(it);
    sequence->claims_begin = block + 1;
  }
}

void Scheduler::PromptComputed(Sequence* sequence, std::vector<SeqEvent>& events) {
  Request* request = sequence->request;
  request->leader = nullptr;
  if (!request->counted) {
    request->counted = true;
    stats_.prompt_tokens += sequence->prompt_count;
    if (config_.prefix_caching) {
      stats_.prefix_queries_tokens += sequence->prompt_count;
      stats_.prefix_hits_tokens += sequence->cached_tokens;
    }
  }
  for (Sequence& sibling : request->sequences) {
    if (sibling.state == SequenceState::kAwaitingPrompt) Fork(*sequence, &sibling, events);
  }
  if (sequence->generated_max == 0 && sequence->state != SequenceState::kEnded) {
    End(sequence, FinishReason::kLength, absl::OkStatus(), {}, events);
  }
}

// The sibling starts with the prompt computed but for its last token, which it computes to draw its
// own first one.
void Scheduler::Fork(const Sequence& leader, Sequence* sibling, std::vector<SeqEvent>& events) {
  sibling->tokens.assign(leader.tokens.begin(), leader.tokens.begin() + leader.prompt_count);
  sibling->cached_tokens = leader.cached_tokens;
  if (sibling->generated_max == 0) {
    End(sibling, FinishReason::kLength, absl::OkStatus(), {}, events);
    return;
  }
  sibling->planned = sibling->computed = leader.prompt_count - 1;
  const int table = BlocksFor(sibling->planned);
  const int shared = std::min<int>(sibling->planned / config_.block_size,
                                   static_cast<int>(leader.contents.size()));
  sibling->blocks.assign(leader.blocks.begin(), leader.blocks.begin() + table);
  for (BlockId block : sibling->blocks) blocks_.Reference(block);
  sibling->contents.assign(leader.contents.begin(), leader.contents.begin() + shared);
  sibling->keys.assign(leader.keys.begin(), leader.keys.begin() + shared);
  sibling->forked = sibling->HoldsBlocks();
  Enqueue(sibling, events);
}

void Scheduler::TakeToken(Sequence* sequence, SampledToken& sampled,
                          std::vector<SeqEvent>& events) {
  if (!sampled.error.ok()) {
    End(sequence, FinishReason::kError, sampled.error, {}, events);
    return;
  }
  std::vector<GeneratedToken> tokens;
  std::optional<FinishReason> finish = AppendToken(sequence, sampled.token.token, sampled.complete);
  tokens.push_back(std::move(sampled.token));
  sequence->awaits_forced = !finish && sequence->promised > 0 &&
                            static_cast<int>(sampled.forced.size()) > sequence->promised;
  // Draws in flight bring the first of what is forced themselves.
  if (sequence->promised > 0 && !IsMutant(Mutant::kForceInFlight)) sampled.forced.clear();
  for (TokenId token : sampled.forced) {
    if (finish && !IsMutant(Mutant::kForceBeyondMaxTokens)) break;
    finish = AppendToken(sequence, token, /*complete=*/false);
    tokens.push_back({token});
    ++sequence->forced_untold;
    sequence->follows_forced = true;
    ++stats_.forced_tokens;
  }
  if (finish) {
    End(sequence, *finish, absl::OkStatus(), std::move(tokens), events);
    return;
  }
  SeqEvent event = MakeEvent(sequence);
  event.tokens = std::move(tokens);
  events.push_back(std::move(event));
}

std::optional<FinishReason> Scheduler::AppendToken(Sequence* sequence, TokenId token,
                                                   bool complete) {
  const GenerateRequest& spec = sequence->request->spec;
  const bool stops =
      (complete || sequence->generated() >= spec.min_tokens) &&
      !IsMutant(Mutant::kIgnoreStopToken) &&
      std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), token) != spec.stop_tokens.end();
  sequence->tokens.push_back(token);
  ++stats_.generation_tokens;
  if (stops) return FinishReason::kStop;
  if (sequence->generated() >= sequence->generated_max) return FinishReason::kLength;
  return std::nullopt;
}

void Scheduler::LeaveStep(Sequence* sequence, std::vector<SeqEvent>& events) {
  if (--sequence->steps_in_flight > 0) return;
  if (sequence->state != SequenceState::kEnded && sequence->state != SequenceState::kPreempted) {
    return;
  }
  draining_.erase(std::find(draining_.begin(), draining_.end(), sequence));
  if (sequence->state == SequenceState::kEnded) {
    Release(sequence);
  } else {
    ReleaseSlot(sequence);
    Requeue(sequence, events);
  }
}

}  // namespace staffel::sched
