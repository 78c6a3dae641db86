#include "base/digest.h"

namespace staffel {
namespace {

constexpr int32_t kSlotsMax = 1 << 16;  // a damaged plan must not make the table huge

uint64_t Word(int32_t high, int32_t low) {
  return static_cast<uint64_t>(static_cast<uint32_t>(high)) << 32 | static_cast<uint32_t>(low);
}

}  // namespace

MirrorDigest::SlotState* MirrorDigest::Find(Slot slot) {
  if (slot.value < 0 || slot.value >= kSlotsMax) return nullptr;
  if (static_cast<size_t>(slot.value) >= slots_.size()) slots_.resize(slot.value + 1);
  return &slots_[slot.value];
}

void MirrorDigest::Update(Slot slot, SlotState& state) {
  sum_ -= state.contribution;
  state.contribution = 0;
  if (state.live) {
    uint64_t h = MixDigest(static_cast<uint64_t>(slot.value), state.tokens);
    h = MixDigest(h, state.blocks);
    state.contribution = MixDigest(h, Word(state.token_count, state.planned_end));
  }
  sum_ += state.contribution;
}

uint64_t MirrorDigest::Apply(const StepPlan& plan) {
  for (const KnownToken& known : plan.known_tokens) {
    SlotState* state = Find(known.slot);
    if (state == nullptr) continue;
    state->tokens = MixDigest(state->tokens, Word(known.position, known.token));
    Update(known.slot, *state);
  }
  for (const ForcedToken& forced : plan.forced_tokens) {
    SlotState* state = Find(forced.slot);
    if (state == nullptr) continue;
    state->tokens = MixDigest(state->tokens, Word(forced.position, forced.token));
    ++state->token_count;
    Update(forced.slot, *state);
  }
  for (Slot slot : plan.released) {
    if (SlotState* state = Find(slot)) {
      state->live = false;
      Update(slot, *state);
    }
  }
  for (const NewSequence& sequence : plan.new_sequences) {
    SlotState* state = Find(sequence.slot);
    if (state == nullptr) continue;
    uint64_t h = Word(sequence.prompt_count, sequence.sequence_index);
    for (TokenId token : sequence.tokens) h = MixDigest(h, static_cast<uint32_t>(token));
    sum_ -= state->contribution;
    *state = SlotState{
        .live = true, .token_count = static_cast<int32_t>(sequence.tokens.size()), .tokens = h};
    Update(sequence.slot, *state);
  }
  for (const BlockAppend& append : plan.block_appends) {
    SlotState* state = Find(append.slot);
    if (state == nullptr) continue;
    for (BlockId block : append.blocks) {
      state->blocks = MixDigest(state->blocks, static_cast<uint32_t>(block.value));
    }
    Update(append.slot, *state);
  }
  for (const BlockCopy& copy : plan.block_copies) {
    copies_ = MixDigest(copies_, Word(copy.source.value, copy.target.value));
  }
  for (const Chunk& chunk : plan.chunks) {
    SlotState* state = Find(chunk.slot);
    if (state == nullptr) continue;
    state->planned_end = chunk.start + chunk.count;
    if (chunk.samples) ++state->token_count;
    Update(chunk.slot, *state);
  }
  const uint64_t digest = MixDigest(sum_, copies_);
  return digest == 0 ? 1 : digest;
}

void MirrorDigest::Reset() {
  slots_.clear();
  sum_ = 0;
  copies_ = 0;
}

}  // namespace staffel
