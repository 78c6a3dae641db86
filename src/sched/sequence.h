// State of requests and their sequences inside the scheduler.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <vector>

#include "sched/block_manager.h"
#include "staffel/request.h"

namespace staffel::sched {

struct Request;

enum class SequenceState : uint8_t {
  kAwaitingPrompt,  // a sibling computes the prompt they share
  kWaiting,         // in the queue; holds blocks only after a fork
  kRunning,         // has a slot and blocks
  kPreempted,       // as kRunning until no plan in flight refers to it, then kWaiting
  kEnded  // its finish event is out; slot and blocks go when no plan in flight refers to it
};

// Token positions: computed <= planned <= known. `planned` are in steps sent, `computed` in steps
// whose outcome came.
struct Sequence {
  Request* request = nullptr;
  int index = 0;     // of the request's n
  int priority = 0;  // copies of the request's, for ordering
  uint64_t arrival = 0;
  SequenceState state = SequenceState::kWaiting;
  Slot slot;

  std::vector<TokenId> tokens;  // prompt and what was generated
  int prompt_count = 0;
  int generated_max = 0;  // max_tokens or what the context leaves
  int promised = 0;       // tokens being drawn by steps in flight
  int planned = 0;
  int computed = 0;
  int steps_in_flight = 0;  // that have a chunk of it
  uint64_t last_step = 0;   // the last that has a chunk of it
  int relayed = 0;          // leading tokens that plans have told the workers
  // Trailing tokens that the grammar forced and that plans have not told yet.
  int forced_untold = 0;
  bool follows_forced = false;  // what it has to compute are forced tokens; no draw since
  // Its grammar forces more tokens than its draws in flight bring: nothing is planned upon those,
  // so that the rest is known with the last of them and computed in one chunk.
  bool awaits_forced = false;

  std::vector<BlockId> blocks;      // table
  std::vector<Hash128> keys;        // of the full blocks of `tokens`, as far as they were needed
  std::vector<ContentId> contents;  // of the leading blocks that are published
  int claims_begin = 0, claims_end = 0;  // its range of keys in Scheduler::claims_
  int awaited_block = -1;  // that another one was computing when this one was last looked at
  bool forked = false;     // waiting with the prompt's blocks; the last one is to be copied

  bool spoke = false;     // its first event is out
  int cached_tokens = 0;  // prompt tokens found computed; fixed by the first event

  int known() const { return static_cast<int>(tokens.size()) + promised; }
  int generated() const { return static_cast<int>(tokens.size()) - prompt_count; }
  // Another token is to be drawn after those that are promised.
  bool WantsToken() const { return generated() + promised < generated_max; }
  // Tokens to plan before it waits for an outcome or is done. The last drawn token needs no
  // computing.
  int Pending() const {
    if (WantsToken()) return known() - planned;
    return std::max(0, prompt_count - planned);
  }
  bool HoldsBlocks() const { return !blocks.empty(); }
};

struct Request {
  GenerateRequest spec;  // its prompt has moved to the first sequence
  std::vector<Sequence> sequences;
  Sequence* leader =
      nullptr;           // computes the prompt while others await it; null once it is computed
  int unreleased = 0;    // sequences that have not ended or still hold a slot or blocks
  bool counted = false;  // in the prefix statistics
  std::vector<PromptLogprob> prompt_logprobs;  // received so far
  std::vector<float> embedding;                // received; of a request that pools
};

// Who goes first: the lower priority value, then the earlier arrival.
struct ByOrder {
  bool operator()(const Sequence* a, const Sequence* b) const {
    return std::tie(a->priority, a->arrival, a->index) <
           std::tie(b->priority, b->arrival, b->index);
  }
};

// The least left to compute first, within a priority.
struct ByWork {
  bool operator()(const Sequence* a, const Sequence* b) const {
    const int work_a = a->known() - a->planned, work_b = b->known() - b->planned;
    return std::tie(a->priority, work_a, a->arrival, a->index) <
           std::tie(b->priority, work_b, b->arrival, b->index);
  }
};

}  // namespace staffel::sched
