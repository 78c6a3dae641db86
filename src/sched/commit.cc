// The draft becomes a plan: blocks and slots change hands, the ledger gets an entry.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "sched/mutation.h"
#include "sched/scheduler.h"

namespace staffel::sched {

StepPlan Scheduler::Commit() {
  StepPlan plan;
  LedgerEntry entry;
  plan.epoch = epoch_;
  plan.step = entry.step = ++step_;
  free_slots_.insert(free_slots_.end(), slots_to_release_.begin(), slots_to_release_.end());
  plan.released = std::exchange(slots_to_release_, {});

  // Found blocks first: allocation must not evict them.
  for (const BlockManager::Found& found : found_) blocks_.Reference(found.block);
  plan.chunks.reserve(draft_.size());
  entry.chunks.reserve(draft_.size());
  entry.decodes = decode_count_;
  for (const Draft& draft : draft_) {
    if (draft.admits) Admit(draft, plan, entry);
    RelayTokens(draft.sequence, plan);
    TellForced(draft.sequence, plan);
    AppendBlocks(draft, plan);
    AddChunk(draft, plan, entry);
  }
  for (size_t i = 0; i < draft_.size(); ++i) {
    entry.prefill_tokens += draft_[i].count - (i < static_cast<size_t>(decode_count_));
  }
  plan.digest = digest_.Apply(plan);
  ledger_.push_back(std::move(entry));
  ++stats_.steps;
  return plan;
}

void Scheduler::Admit(const Draft& draft, StepPlan& plan, LedgerEntry& entry) {
  Sequence* sequence = draft.sequence;
  Dequeue(sequence);
  SetState(sequence, SequenceState::kRunning);
  running_.insert(std::lower_bound(running_.begin(), running_.end(), sequence, ByOrder()),
                  sequence);
  STAFFEL_CHECK(!free_slots_.empty());
  sequence->slot = free_slots_.back();
  free_slots_.pop_back();

  const GenerateRequest& spec = sequence->request->spec;
  plan.new_sequences.push_back({.slot = sequence->slot,
                                .tokens = sequence->tokens,
                                .prompt_count = sequence->prompt_count,
                                .sequence_index = sequence->index,
                                .sampling = spec.sampling,
                                .min_tokens = spec.min_tokens,
                                .stop_tokens = spec.stop_tokens,
                                .pooling = spec.pooling});
  sequence->relayed = IsMutant(Mutant::kRelayAfterReturn)
                          ? sequence->prompt_count
                          : static_cast<int>(sequence->tokens.size());
  if (!IsMutant(Mutant::kForceAfterReturn)) sequence->forced_untold = 0;
  if (!sequence->forked) return;
  sequence->forked = false;
  BlockAppend append{.slot = sequence->slot, .blocks = sequence->blocks};
  if (sequence->planned % config_.block_size != 0) {
    // The last block is partly the prompt's: the sequence writes on in a copy of it.
    const BlockId source = sequence->blocks.back(), target = blocks_.Allocate();
    if (!IsMutant(Mutant::kSkipCopy)) plan.block_copies.push_back({source, target});
    entry.copy_sources.push_back(source);
    sequence->blocks.back() = append.blocks.back() = target;
  }
  plan.block_appends.push_back(std::move(append));
}

void Scheduler::AppendBlocks(const Draft& draft, StepPlan& plan) {
  Sequence* sequence = draft.sequence;
  const int needed = BlocksFor(draft.start + draft.count);
  if (needed <= static_cast<int>(sequence->blocks.size())) return;
  if (plan.block_appends.empty() || plan.block_appends.back().slot != sequence->slot) {
    plan.block_appends.push_back({.slot = sequence->slot});
  }
  BlockAppend& append = plan.block_appends.back();
  for (int i = 0; i < draft.found_count; ++i) {
    const BlockManager::Found& found = found_[draft.found_begin + i];
    sequence->blocks.push_back(found.block);
    sequence->contents.push_back(found.content);
    append.blocks.push_back(found.block);
  }
  if (draft.found_count > 0) sequence->computed = draft.start;
  if (!sequence->spoke) sequence->cached_tokens += draft.found_count * config_.block_size;
  while (static_cast<int>(sequence->blocks.size()) < needed) {
    sequence->blocks.push_back(blocks_.Allocate());
    append.blocks.push_back(sequence->blocks.back());
  }
}

void Scheduler::RelayTokens(Sequence* sequence, StepPlan& plan) {
  if (!config_.relay_tokens) return;
  const int known = static_cast<int>(sequence->tokens.size()) - sequence->forced_untold;
  for (; sequence->relayed < known; ++sequence->relayed) {
    if (IsMutant(Mutant::kForgetRelay)) continue;
    const int position =
        IsMutant(Mutant::kRelayFirstAgain) ? sequence->prompt_count : sequence->relayed;
    plan.known_tokens.push_back({sequence->slot, sequence->relayed, sequence->tokens[position]});
    if (IsMutant(Mutant::kRelayTwice)) plan.known_tokens.push_back(plan.known_tokens.back());
  }
}

void Scheduler::TellForced(Sequence* sequence, StepPlan& plan) {
  const int known = static_cast<int>(sequence->tokens.size());
  for (; sequence->forced_untold > 0; --sequence->forced_untold) {
    const int position = known - sequence->forced_untold;
    if (IsMutant(Mutant::kForgetForced)) continue;
    plan.forced_tokens.push_back({sequence->slot, position, sequence->tokens[position]});
    sequence->relayed = position + 1;
  }
}

void Scheduler::AddChunk(const Draft& draft, StepPlan& plan, LedgerEntry& entry) {
  Sequence* sequence = draft.sequence;
  const int end = draft.start + draft.count;
  const bool samples = end == sequence->known() && sequence->WantsToken();
  const bool logprobs = OwesLogprobs(*sequence) && draft.start < sequence->prompt_count - 1 &&
                        end > static_cast<int>(sequence->request->prompt_logprobs.size());
  plan.chunks.push_back({.slot = sequence->slot,
                         .start = draft.start,
                         .count = draft.count,
                         .samples = samples,
                         .prompt_logprobs = logprobs});
  const bool pools = sequence->request->spec.pooling != Pooling::kNone &&
                     draft.start < sequence->prompt_count && end >= sequence->prompt_count;
  entry.chunks.push_back({sequence, draft.start, draft.count, samples, logprobs, pools});
  sequence->planned = end;
  sequence->promised += samples;
  if (samples) sequence->follows_forced = false;
  ++sequence->steps_in_flight;
  sequence->last_step = entry.step;
  if (IsMutant(Mutant::kPublishEarly)) {
    sequence->computed = end;
    Publish(sequence);
  }
}

}  // namespace staffel::sched
