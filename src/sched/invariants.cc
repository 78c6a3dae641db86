// What must hold between any two events.
#include <algorithm>

#include "base/check.h"
#include "sched/mutation.h"
#include "sched/scheduler.h"

namespace staffel::sched {

void Scheduler::CheckInvariants() const {
  std::vector<int> references(blocks_.total(), 0), slots(config_.max_sequences, 0);
  for (const LedgerEntry& entry : ledger_) {
    for (BlockId block : entry.copy_sources) ++references[block.value];
  }
  int waiting = 0;
  for (const auto& [id, request] : requests_) {
    int unreleased = 0;
    for (const Sequence& sequence : request->sequences) {
      CheckSequence(sequence, references, slots);
      waiting += sequence.state == SequenceState::kWaiting ||
                 sequence.state == SequenceState::kAwaitingPrompt;
      unreleased += sequence.state != SequenceState::kEnded || sequence.steps_in_flight > 0;
    }
    STAFFEL_CHECK_EQ(unreleased, request->unreleased) << "request " << id;
  }
  STAFFEL_CHECK_EQ(waiting, waiting_count_);
  blocks_.CheckInvariants(references);
  for (Slot slot : free_slots_) ++slots[slot.value];
  for (Slot slot : slots_to_release_) ++slots[slot.value];
  for (int i = 0; i < config_.max_sequences; ++i)
    STAFFEL_CHECK_EQ(slots[i], 1) << "uses of slot " << i;
  CheckLists();
  if (requests_.empty() && ledger_.empty()) {
    STAFFEL_CHECK_EQ(blocks_.owned_count(), 0) << "blocks are owned although nothing runs";
    STAFFEL_CHECK(claims_.empty());
  }
}

void Scheduler::CheckSequence(const Sequence& sequence, std::vector<int>& references,
                              std::vector<int>& slots) const {
  using enum SequenceState;
  const SequenceState state = sequence.state;
  for (BlockId block : sequence.blocks) ++references[block.value];
  if (sequence.slot.valid()) ++slots[sequence.slot.value];
  const bool in_use =
      state == kRunning || state == kPreempted || (state == kEnded && sequence.steps_in_flight > 0);
  STAFFEL_CHECK_EQ(sequence.slot.valid(), in_use) << "slot of a sequence in state " << int(state);
  STAFFEL_CHECK_LE(sequence.computed, sequence.planned);
  STAFFEL_CHECK_GE(sequence.promised, 0);
  STAFFEL_CHECK_LE(sequence.promised, config_.promised_tokens_max);
  STAFFEL_CHECK(sequence.forced_untold == 0 || sequence.promised == 0)
      << "a draw ahead of forced tokens";
  STAFFEL_CHECK(!sequence.awaits_forced || sequence.promised > 0 || state == kEnded);
  if (state == kAwaitingPrompt) {
    STAFFEL_CHECK(sequence.request->leader != nullptr) << "nobody computes the prompt";
    return;
  }
  if (state != kEnded) {
    STAFFEL_CHECK_LE(sequence.planned, sequence.known());
    STAFFEL_CHECK_LE(sequence.generated() + sequence.promised, sequence.generated_max);
  }
  if (state == kRunning || state == kPreempted) {
    const int table_tokens = static_cast<int>(sequence.blocks.size()) * config_.block_size;
    STAFFEL_CHECK_LE(sequence.planned, table_tokens);
    STAFFEL_CHECK_LT(table_tokens - sequence.planned, config_.block_size) << "an unused block";
  }
  STAFFEL_CHECK_LE(sequence.contents.size() * config_.block_size,
                   static_cast<size_t>(std::max(sequence.computed, 0)))
      << "published before it was computed";
  STAFFEL_CHECK(sequence.cached_tokens == 0 || sequence.cached_tokens < sequence.prompt_count);
}

void Scheduler::CheckLists() const {
  const auto in_flight = [this](const Sequence* sequence) {
    int steps = 0;
    for (const LedgerEntry& entry : ledger_) {
      steps += std::count_if(entry.chunks.begin(), entry.chunks.end(),
                             [&](const PlannedChunk& c) { return c.sequence == sequence; });
    }
    return steps;
  };
  for (const Sequence* sequence : running_) {
    STAFFEL_CHECK(sequence->state == SequenceState::kRunning);
    STAFFEL_CHECK_EQ(sequence->steps_in_flight, in_flight(sequence));
  }
  for (const Sequence* sequence : draining_) {
    STAFFEL_CHECK_GT(sequence->steps_in_flight, 0);
    STAFFEL_CHECK_EQ(sequence->steps_in_flight, in_flight(sequence));
  }
  STAFFEL_CHECK(std::is_sorted(running_.begin(), running_.end(), ByOrder()));
  STAFFEL_CHECK(std::is_sorted(forked_.begin(), forked_.end(), ByOrder()));
  for (const Sequence* sequence : queue_.by_order()) {
    STAFFEL_CHECK(sequence->state == SequenceState::kWaiting);
    STAFFEL_CHECK_EQ(std::binary_search(forked_.begin(), forked_.end(), sequence, ByOrder()),
                     sequence->HoldsBlocks());
  }
}

}  // namespace staffel::sched
