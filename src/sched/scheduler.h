// Decides what the workers compute, step by step: continuous batching, chunked prefill, prefix
// reuse, preemption. A deterministic function of its events: no thread, I/O, clock or global; one
// thread at a time calls it.
//
// Life of a step: Plan() reserves, commits and enters the plan in the ledger; the caller sends it;
// Apply() takes its outcome. Several plans may be in flight. Slots and blocks that a plan in flight
// refers to are not given away, whatever became of the sequence meanwhile (cancelled, preempted,
// stopped).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "base/digest.h"
#include "sched/block_manager.h"
#include "sched/config.h"
#include "sched/cost_model.h"
#include "sched/sequence.h"
#include "sched/waiting_queue.h"
#include "staffel/request.h"
#include "staffel/step.h"

namespace staffel::sched {

class Scheduler {
 public:
  // config.Validate() must be OK.
  explicit Scheduler(const Config& config);

  // Whether a request of these sizes can ever run. InvalidArgument names the limit.
  static Status Check(const Config& config, const GenerateRequest& request);
  // Check, and its id must be new.
  Status Submit(GenerateRequest request);

  // Ends sequence `index` of a request, or all with -1, with kCancelled. Unknown ones are ignored.
  void Cancel(RequestId request, int index, std::vector<SeqEvent>& events);

  // The next step, to be sent at once and in order; nothing if there is nothing to do before an
  // outcome comes or a request is submitted. `events` gets the ends of sequences that the KV pool
  // cannot hold.
  std::optional<StepPlan> Plan(std::vector<SeqEvent>& events);

  // Whether an outcome is of this epoch. Others speak for workers that are gone: ignore them.
  bool IsCurrent(const StepOutcome& outcome) const;
  // The outcome of the oldest step in flight; current, and its status OK. Internal: it does not fit
  // the plan (a broken worker); nothing has changed then.
  Status Apply(StepOutcome outcome, std::vector<SeqEvent>& events);

  // The workers and their KV are gone: forgets all steps in flight and returns the sequences to the
  // queue with their tokens. Plans made from now on are of settings.epoch (greater than before),
  // for workers as the settings say, which must be such that Config::Validate is OK; sequences that
  // cannot fit the pool end.
  void BeginEpoch(const EpochSettings& settings, std::vector<SeqEvent>& events);

  // Ends everything with kError. Steps in flight stay in the ledger until their outcome or the next
  // epoch.
  void Fail(const Status& error, std::vector<SeqEvent>& events);

  int epoch() const { return epoch_; }
  int steps_in_flight() const { return static_cast<int>(ledger_.size()); }
  int running_count() const { return static_cast<int>(running_.size()); }
  int waiting_count() const { return waiting_count_; }
  bool HasWork() const { return running_count() + waiting_count() > 0; }
  int PrefillBesideDecodes() const { return costs_.PrefillBesideDecodes(); }
  // The scheduler's part: counts of sequences, blocks, tokens and ends.
  const EngineStats& stats();

  // Every fact that must hold between events; a violation is a bug and aborts. O(blocks +
  // sequences).
  void CheckInvariants() const;

 private:
  struct PlannedChunk {
    Sequence* sequence;
    int start, count;
    bool samples, prompt_logprobs;
    bool pools;  // the embedding of its prompt is due
  };
  struct LedgerEntry {
    uint64_t step = 0;
    std::vector<PlannedChunk> chunks;
    std::vector<BlockId> copy_sources;  // referenced until the copy is done
    int decodes = 0, prefill_tokens = 0;
  };
  // What Plan means to do with a sequence; nothing is changed before Commit.
  struct Draft {
    Sequence* sequence;
    int start, count;
    int found_begin, found_count;  // range of found_: blocks that need no computing
    bool admits;
  };
  // What a waiting sequence would need.
  struct Admission {
    int start = 0;   // first token to compute
    int have = 0;    // blocks before it
    int unused = 0;  // of these, ones that count as free
    int needed = 0;  // free blocks for all its known tokens
  };
  enum class Try { kDrafted, kDeferred, kNoRoom };

  // plan.cc: what the step holds
  void MakeRoom(std::vector<SeqEvent>& events);
  Sequence* VictimAfter(const Sequence* sequence) const;
  bool Ready(const Sequence& sequence) const;
  void BeginDraft();
  void DraftDecodes();
  int BlocksMissing(const Sequence& sequence) const;
  int MicroBatchTokens() const;
  void DraftPrefills();
  void DraftOldest(int tokens_max);
  void DraftByWork();
  void CheckBlockedHead();
  Try DraftRunning(Sequence* sequence, int tokens_max);
  Try Examine(Sequence* sequence, Admission& admission);
  Try DraftAdmission(Sequence* sequence, int tokens_max);
  void AddDraft(Sequence* sequence, int start, int count, int found_begin, bool admits);
  void GrowForced();
  void GrowDrafts();
  int Grow(Draft& draft);
  bool Drafted(const Sequence* sequence) const;
  int Lookup(Sequence* sequence, int begin_block);
  int UnusedAmongFound(int found_begin) const;
  int CachedTokensMax(const Sequence& sequence) const;
  bool OwesLogprobs(const Sequence& sequence) const;
  int ChunkTokensMax(const Sequence& sequence) const;
  bool ClaimedByOther(Sequence* sequence, int start);
  bool StillAwaits(Sequence& sequence) const;
  void Claim(Sequence* sequence, int start, int end);
  bool ResolveStall(std::vector<SeqEvent>& events);

  // commit.cc: the draft becomes a plan
  StepPlan Commit();
  void Admit(const Draft& draft, StepPlan& plan, LedgerEntry& entry);
  void RelayTokens(Sequence* sequence, StepPlan& plan);
  void TellForced(Sequence* sequence, StepPlan& plan);
  void AppendBlocks(const Draft& draft, StepPlan& plan);
  void AddChunk(const Draft& draft, StepPlan& plan, LedgerEntry& entry);

  // apply.cc: outcomes
  Status CheckOutcome(const LedgerEntry& entry, const StepOutcome& outcome) const;
  void TakePromptLogprobs(const LedgerEntry& entry, StepOutcome& outcome);
  void ApplyChunk(const PlannedChunk& chunk, SampledToken* sampled, std::vector<SeqEvent>& events);
  void Publish(Sequence* sequence);
  void PromptComputed(Sequence* sequence, std::vector<SeqEvent>& events);
  void Fork(const Sequence& leader, Sequence* sibling, std::vector<SeqEvent>& events);
  void TakeToken(Sequence* sequence, SampledToken& sampled, std::vector<SeqEvent>& events);
  // The reason if the sequence ends with it.
  std::optional<FinishReason> AppendToken(Sequence* sequence, TokenId token, bool complete);
  void LeaveStep(Sequence* sequence, std::vector<SeqEvent>& events);

  // scheduler.cc: life of a sequence
  void Enqueue(Sequence* sequence, std::vector<SeqEvent>& events);
  void Dequeue(Sequence* sequence);
  void SetState(Sequence* sequence, SequenceState state);
  void Preempt(Sequence* sequence, std::vector<SeqEvent>& events);
  void Requeue(Sequence* sequence, std::vector<SeqEvent>& events);
  void End(Sequence* sequence, FinishReason reason, const Status& error,
           std::vector<GeneratedToken> last, std::vector<SeqEvent>& events);
  void EndRequest(Request* request, int index, FinishReason reason, const Status& error,
                  std::vector<SeqEvent>& events);
  void HandOverPrompt(Request* request, std::vector<SeqEvent>& events);
  void ResetProgress(Sequence* sequence);
  void ReleaseBlocks(Sequence* sequence);
  void ReleaseSlot(Sequence* sequence);
  void Unclaim(Sequence* sequence);
  void Release(Sequence* sequence);
  void Unpin(Request* request);
  SeqEvent MakeEvent(Sequence* sequence);
  void CountFinish(FinishReason reason);
  void ExtendKeys(Sequence* sequence, int block_count);
  absl::Span<const TokenId> TokensOfBlock(const Sequence& sequence, int block) const;
  int ExclusiveBlocks(const Sequence& sequence) const;
  int BlocksFor(int token_count) const {
    return (token_count + config_.block_size - 1) / config_.block_size;
  }

  // invariants.cc
  void CheckSequence(const Sequence& sequence, std::vector<int>& references,
                     std::vector<int>& slots) const;
  void CheckLists() const;

  Config config_;
  BlockManager blocks_;
  CostModel costs_;
  MirrorDigest digest_;
  int epoch_;
  uint64_t step_ = 0;
  uint64_t arrivals_ = 0;

  absl::btree_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<Sequence*> running_;   // kRunning, by order
  std::vector<Sequence*> forked_;    // kWaiting with blocks held, by order
  std::vector<Sequence*> draining_;  // kPreempted and kEnded with steps in flight
  WaitingQueue queue_;
  int waiting_count_ = 0;  // kWaiting and kAwaitingPrompt
  std::deque<LedgerEntry> ledger_;
  std::vector<Slot> free_slots_, slots_to_release_;
  // Keys of blocks that a running sequence is computing: another with the same prefix waits for
  // them.
  absl::flat_hash_map<Hash128, Sequence*> claims_;
  // The head of the queue that waits for blocks, and how many have overtaken it.
  const Sequence* blocked_head_ = nullptr;
  int overtakes_ = 0;

  // Scratch of one Plan.
  std::vector<Draft> draft_;                // decodes first
  std::vector<BlockManager::Found> found_;  // of all drafts
  std::vector<Sequence*> decodes_;          // running ones with one token to compute
  std::vector<Sequence*> prefills_;         // running ones with more than one token to compute
  int decode_count_ = 0;                    // leading drafts
  int streams_ = 0;         // sequences that are generating: they feel the length of this step
  int room_ = 0;            // free blocks not yet drafted
  int admission_room_ = 0;  // the same less what running sequences need for their known tokens
  int slots_left_ = 0;
  int tokens_left_ = 0;
  int logprob_rows_left_ = 0;
  bool head_blocked_ = false;

  EngineStats stats_;
};

}  // namespace staffel::sched
