// MirrorDigest: a running hash of the sequence mirror that a StepPlan is a delta on. The master
// folds every plan into its own copy and sends the value; a worker folds the same plan and
// compares. A plan that was lost, doubled, reordered or damaged, or a worker that joined with
// another state, shows at the next step. Values of sampled tokens are part of it once a plan tells
// them (known_tokens), until then their count only: the master plans ahead of them. One thread;
// O(changes of the plan).
#pragma once

#include <cstdint>
#include <vector>

#include "staffel/step.h"

namespace staffel {

// Murmur3's 64-bit finaliser over both words: enough to tell states apart, not meant against an
// adversary.
constexpr uint64_t MixDigest(uint64_t a, uint64_t b) {
  uint64_t h = a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2));
  h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdu;
  h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53u;
  return h ^ (h >> 33);
}

class MirrorDigest {
 public:
  // Folds `plan` in, in the order step.h gives, and returns the digest after it: what
  // StepPlan::digest must be. Never 0. Tolerates any plan; whether a slot exists is for the caller
  // to check.
  uint64_t Apply(const StepPlan& plan);
  // The state before the first plan of an epoch.
  void Reset();

 private:
  struct SlotState {
    bool live = false;
    // Known: given with NewSequence or forced, plus one for each chunk that samples.
    int32_t token_count = 0;
    int32_t planned_end = 0;    // start + count of the last chunk
    uint64_t tokens = 0;        // hash of what NewSequence, known_tokens and forced_tokens gave
    uint64_t blocks = 0;        // hash of the block table
    uint64_t contribution = 0;  // to sum_
  };
  SlotState* Find(Slot slot);
  void Update(Slot slot, SlotState& state);

  std::vector<SlotState> slots_;  // grows to the highest slot seen
  uint64_t sum_ = 0;     // of the slots' contributions: order does not matter, so updates are local
  uint64_t copies_ = 0;  // chained over all block copies of the epoch
};

}  // namespace staffel
