// Planted bugs for the mutation check (tests/sim): a build with STAFFEL_MUTANTS can switch one on
// at run time; everywhere else the switch is the constant false and leaves no code.
#pragma once

namespace staffel::sched {

enum class Mutant {
  kNone,
  kFreeBlocksInFlight,     // an ended sequence gives its blocks back although a plan refers to them
  kReuseSlotInFlight,      // likewise its slot
  kSkipCopy,               // a fork does not copy the partial last block
  kTrustHash,              // a block is found by its hash alone
  kPublishEarly,           // blocks are published when planned, not when computed
  kComputedOffByOne,       // one token too many counts as computed
  kDropCancel,             // a cancelled sequence runs on
  kForgetPreemptedTokens,  // a preempted sequence comes back with its prompt only
  kIgnoreSalt,             // prefix blocks are shared between salts
  kEvictPinned,            // a found block stays evictable
  kLeakBlock,              // the last block of a table is not given back
  kDoubleFree,             // the first block of a table is given back twice
  kCacheWholePrompt,       // the last prompt token is not recomputed
  kAcceptOldEpoch,         // an outcome of an older epoch is applied
  kPoolCachedPrompt,       // the embedding's mean lacks what was found in the prefix cache
  kSkipOwedLogprobs,       // cached tokens lose their prompt log-probabilities
  kPlanBeyondMaxTokens,    // decode chunks are planned past max_tokens
  kIgnoreStopToken,        // a drawn stop token does not end the sequence
  kStarveOldest,           // the oldest request has no share of its own
  kPrefillUnbounded,       // prefill beside decodes takes the whole step
  kCountHitsAgain,         // a requeued request is counted again in the prefix statistics
  kKeepCacheOverEpochs,    // the prefix index outlives the workers whose blocks it names
  kForgetRelay,            // a drawn token is not told to ranks that do not sample
  kRelayTwice,             // it is told twice
  kRelayAfterReturn,       // a sequence that comes back has all its drawn tokens told again
  kRelayFirstAgain,        // the first drawn token is told in the place of each later one
  kPromiseInPipeline,      // a draw in flight is planned upon, though the first stage waits for it
  kMicroBatchTakesAll,     // a step takes all decodes that are ready: other stages have nothing
  kKeepLayoutOverEpochs,   // plans are made for the stages of the epoch before
  kKeepDepthOverEpochs,    // as many steps are in flight as in the epoch before
  kForgetForced,           // a forced token is not told
  kForceInFlight,          // forced tokens are taken as known though draws in flight bring them
  kForceAfterReturn,       // a sequence that comes back has forced tokens told again
  kForceBeyondMaxTokens,   // forced tokens go past max_tokens
  kEnd
};

#if defined(STAFFEL_MUTANTS)
extern Mutant active_mutant;
extern int weak_hash_bits;  // >= 0: hashes of the prefix index keep only that many bits
inline bool IsMutant(Mutant mutant) { return active_mutant == mutant; }
inline int WeakHashBits() { return weak_hash_bits; }
#else
constexpr bool IsMutant(Mutant) { return false; }
constexpr int WeakHashBits() { return -1; }
#endif

}  // namespace staffel::sched
