// What the next step holds. Drafting only counts; Commit (commit.cc) changes the books.
#include <algorithm>

#include "base/check.h"
#include "base/strings.h"
#include "sched/mutation.h"
#include "sched/scheduler.h"

namespace staffel::sched {
namespace {

// Candidates looked at in one step beyond those that are drafted: bounds the time of a plan when
// many wait for the same prefix.
constexpr int kDeferredMax = 16;
// They come by work left, so when some find no room, hardly a later one will.
constexpr int kNoRoomMax = 4;

constexpr int CeilDiv(int64_t a, int b) { return static_cast<int>((a + b - 1) / b); }

}  // namespace

std::optional<StepPlan> Scheduler::Plan(std::vector<SeqEvent>& events) {
  while (HasWork()) {
    MakeRoom(events);
    BeginDraft();
    DraftDecodes();
    DraftPrefills();
    if (!draft_.empty()) return Commit();
    if (!ledger_.empty() || !ResolveStall(events)) break;
  }
  return std::nullopt;
}

bool Scheduler::Ready(const Sequence& sequence) const {
  if (IsMutant(Mutant::kPlanBeyondMaxTokens) && sequence.promised > 0) {
    return sequence.promised < config_.promised_tokens_max;
  }
  if (sequence.awaits_forced) return false;
  return sequence.Pending() > 0 && sequence.promised < config_.promised_tokens_max;
}

// Preempts from the end of the order until every running sequence, in order, can go on by a block,
// or its turn comes to be the last itself.
void Scheduler::MakeRoom(std::vector<SeqEvent>& events) {
  if (blocks_.free_count() >= running_count()) return;
  int coming = 0;  // from sequences that give their blocks back when steps in flight are done
  for (const Sequence* sequence : draining_) coming += ExclusiveBlocks(*sequence);
  int needed = 0;
  for (size_t i = 0; i < running_.size(); ++i) {
    const Sequence& sequence = *running_[i];
    const int table_tokens = static_cast<int>(sequence.blocks.size()) * config_.block_size;
    if (!Ready(sequence) || sequence.planned < table_tokens) continue;
    while (needed + 1 > blocks_.free_count() + coming) {
      Sequence* victim = VictimAfter(&sequence);
      if (victim == nullptr) return;
      if (victim->steps_in_flight > 0) coming += ExclusiveBlocks(*victim);
      Preempt(victim, events);
    }
    ++needed;
  }
}

// The last of those that hold blocks; null if that is `sequence` itself.
Sequence* Scheduler::VictimAfter(const Sequence* sequence) const {
  Sequence* last = running_.empty() ? nullptr : running_.back();
  if (!forked_.empty() && (last == nullptr || ByOrder()(last, forked_.back()))) {
    last = forked_.back();
  }
  return last != nullptr && ByOrder()(sequence, last) ? last : nullptr;
}

void Scheduler::BeginDraft() {
  draft_.clear();
  found_.clear();
  decodes_.clear();
  prefills_.clear();
  streams_ = 0;
  room_ = admission_room_ = blocks_.free_count();
  slots_left_ = static_cast<int>(free_slots_.size() + slots_to_release_.size());
  tokens_left_ = config_.tokens_per_step_max;
  logprob_rows_left_ = config_.prompt_logprob_rows_max;
}

void Scheduler::DraftDecodes() {
  int decoding = 0;  // of which some are in flight
  for (Sequence* sequence : running_) {
    const int known = sequence->known();
    admission_room_ -= BlocksMissing(*sequence);
    const int pending = sequence->Pending();
    const bool prefills = pending > 1 && !sequence->follows_forced;
    streams_ += known > sequence->prompt_count &&
                (known - sequence->planned <= 1 || sequence->follows_forced);
    decoding += sequence->promised > 0 || (pending > 0 && !prefills);
    if (!Ready(*sequence)) continue;
    (prefills ? prefills_ : decodes_).push_back(sequence);
  }
  const int micro_batches = IsMutant(Mutant::kMicroBatchTakesAll) ? 1 : config_.micro_batches;
  const auto share = static_cast<size_t>(CeilDiv(decoding, micro_batches));
  if (decodes_.size() > share) {
    // Those that have waited longest, so that each is in one of the next micro_batches steps.
    std::stable_sort(decodes_.begin(), decodes_.end(), [](const Sequence* a, const Sequence* b) {
      return a->last_step < b->last_step;
    });
  }
  for (Sequence* sequence : decodes_) {
    if (draft_.size() == share) break;
    const int missing =
        BlocksFor(sequence->planned + 1) - static_cast<int>(sequence->blocks.size());
    if (missing > room_) continue;
    room_ -= std::max(missing, 0);
    --tokens_left_;
    draft_.push_back({.sequence = sequence, .start = sequence->planned, .count = 1});
  }
  decode_count_ = static_cast<int>(draft_.size());
}

// Forced tokens cost no step of their own as far as the step has room beside the oldest prompt's
// share; a token of each sequence is computed in any case.
void Scheduler::GrowForced() {
  for (int i = 0; i < decode_count_; ++i) {
    if (draft_[i].sequence->follows_forced) Grow(draft_[i]);
  }
  std::stable_partition(draft_.begin(), draft_.begin() + decode_count_,
                        [](const Draft& draft) { return draft.count == 1; });
}

int Scheduler::BlocksMissing(const Sequence& sequence) const {
  return std::max(0, BlocksFor(sequence.known()) - static_cast<int>(sequence.blocks.size()));
}

// Prefill is spread over as many steps as are to be in flight: what is to be computed and what is
// in flight, in equal parts.
int Scheduler::MicroBatchTokens() const {
  const int64_t enough = int64_t{config_.tokens_per_step_max} * config_.micro_batches;
  int64_t work = 0;
  for (const LedgerEntry& entry : ledger_) work += entry.prefill_tokens;
  for (const Sequence* sequence : prefills_) work += sequence->Pending();
  int slots = slots_left_;
  for (const Sequence* sequence : queue_.by_order()) {
    if (work >= enough || slots-- == 0) break;
    work += sequence->Pending();
  }
  // Beside decodes the weights are read anyway.
  const int least =
      decode_count_ > 0 ? config_.prefill_beside_decodes_min : config_.micro_batch_tokens_min;
  return std::max(least, CeilDiv(std::min(work, enough), config_.micro_batches));
}

void Scheduler::DraftPrefills() {
  const int candidates = static_cast<int>(prefills_.size()) + queue_.size();
  if (streams_ > 0 && !IsMutant(Mutant::kPrefillUnbounded)) {
    tokens_left_ = std::min(tokens_left_, costs_.PrefillBesideDecodes());
  }
  if (config_.micro_batches > 1) tokens_left_ = std::min(tokens_left_, MicroBatchTokens());
  if (candidates == 0) {
    GrowForced();
    return;
  }
  CheckBlockedHead();
  const int share = std::max(1, tokens_left_ * config_.oldest_share_percent / 100);
  if (!IsMutant(Mutant::kStarveOldest)) DraftOldest(candidates == 1 ? tokens_left_ : share);
  GrowForced();
  DraftByWork();
  GrowDrafts();
}

// A head of the queue that finds no room may be overtaken, but not for ever.
void Scheduler::CheckBlockedHead() {
  Admission admission;
  head_blocked_ =
      !queue_.empty() && slots_left_ > 0 && Examine(queue_.first(), admission) == Try::kNoRoom;
  found_.clear();
  if (!head_blocked_ || blocked_head_ != queue_.first()) overtakes_ = 0;
  blocked_head_ = head_blocked_ ? queue_.first() : nullptr;
}

// The guaranteed share goes to the first in order that can use it.
void Scheduler::DraftOldest(int tokens_max) {
  bool head_tried = queue_.empty() || head_blocked_;
  for (Sequence* sequence : prefills_) {
    if (!head_tried && ByOrder()(queue_.first(), sequence)) {
      head_tried = true;
      if (DraftAdmission(queue_.first(), tokens_max) == Try::kDrafted) return;
    }
    if (DraftRunning(sequence, tokens_max) == Try::kDrafted) return;
  }
  if (!head_tried) DraftAdmission(queue_.first(), tokens_max);
}

// The rest goes to those with the least left to compute, running or waiting.
void Scheduler::DraftByWork() {
  std::sort(prefills_.begin(), prefills_.end(), ByWork());
  auto running = prefills_.begin();
  auto waiting = queue_.by_work().begin();
  int deferred = 0, no_room = 0;
  while (tokens_left_ > 0 && deferred < kDeferredMax) {
    const bool admits = slots_left_ > 0 && waiting != queue_.by_work().end() &&
                        no_room < kNoRoomMax &&
                        (!head_blocked_ || overtakes_ < config_.overtakes_max);
    if (running == prefills_.end() && !admits) return;
    Sequence* sequence;
    if (running == prefills_.end() || (admits && ByWork()(*waiting, *running))) {
      sequence = *waiting++;
      if (sequence == blocked_head_ || Drafted(sequence)) continue;
      const Try result = DraftAdmission(sequence, tokens_left_);
      overtakes_ += head_blocked_ && result == Try::kDrafted;
      deferred += result == Try::kDeferred;
      no_room += result == Try::kNoRoom;
    } else {
      sequence = *running++;
      if (Drafted(sequence)) continue;
      if (DraftRunning(sequence, tokens_left_) != Try::kDrafted) ++deferred;
    }
  }
}

bool Scheduler::Drafted(const Sequence* sequence) const {
  return std::any_of(draft_.begin() + decode_count_, draft_.end(),
                     [&](const Draft& draft) { return draft.sequence == sequence; });
}

Scheduler::Try Scheduler::DraftRunning(Sequence* sequence, int tokens_max) {
  if (StillAwaits(*sequence)) return Try::kDeferred;
  const int found_begin = static_cast<int>(found_.size());
  const int table = static_cast<int>(sequence->blocks.size());
  const int table_tokens = table * config_.block_size;
  // What others have computed since the last chunk is found here.
  if (sequence->planned == table_tokens && static_cast<int>(sequence->contents.size()) == table) {
    Lookup(sequence, table);
  }
  const int found = static_cast<int>(found_.size()) - found_begin;
  const int start = sequence->planned + found * config_.block_size;
  if (ClaimedByOther(sequence, start)) {
    found_.resize(found_begin);
    return Try::kDeferred;
  }
  const int room = room_ - UnusedAmongFound(found_begin);
  const int count = std::min({tokens_max, ChunkTokensMax(*sequence), sequence->known() - start,
                              (table + found + room) * config_.block_size - start});
  if (room < 0 || count <= 0) {
    found_.resize(found_begin);
    return Try::kNoRoom;
  }
  room_ = room - std::max(0, BlocksFor(start + count) - table - found);
  AddDraft(sequence, start, count, found_begin, /*admits=*/false);
  return Try::kDrafted;
}

Scheduler::Try Scheduler::Examine(Sequence* sequence, Admission& admission) {
  if (StillAwaits(*sequence)) return Try::kDeferred;
  const int found_begin = static_cast<int>(found_.size());
  admission.start = sequence->planned;
  if (sequence->forked) {
    admission.have = sequence->planned / config_.block_size;
  } else {
    admission.have = Lookup(sequence, 0);
    admission.start = admission.have * config_.block_size;
    if (ClaimedByOther(sequence, admission.start)) return Try::kDeferred;
  }
  admission.unused = UnusedAmongFound(found_begin);
  admission.needed = BlocksFor(sequence->known()) - admission.have + admission.unused;
  // Each running sequence is left a block to grow into: else the newcomer would soon be preempted
  // again.
  const int growth = config_.max_sequences - slots_left_;
  return admission.needed + growth > admission_room_ ? Try::kNoRoom : Try::kDrafted;
}

Scheduler::Try Scheduler::DraftAdmission(Sequence* sequence, int tokens_max) {
  if (slots_left_ == 0 || ChunkTokensMax(*sequence) == 0) return Try::kDeferred;
  const int found_begin = static_cast<int>(found_.size());
  Admission admission;
  if (const Try result = Examine(sequence, admission); result != Try::kDrafted) {
    found_.resize(found_begin);
    return result;
  }
  const int count =
      std::min({tokens_max, ChunkTokensMax(*sequence), sequence->known() - admission.start});
  room_ -= BlocksFor(admission.start + count) - admission.have + admission.unused;
  admission_room_ -= admission.needed;
  --slots_left_;
  AddDraft(sequence, admission.start, count, found_begin, /*admits=*/true);
  return Try::kDrafted;
}

void Scheduler::AddDraft(Sequence* sequence, int start, int count, int found_begin, bool admits) {
  tokens_left_ -= count;
  if (OwesLogprobs(*sequence)) logprob_rows_left_ -= count;
  draft_.push_back(
      {sequence, start, count, found_begin, static_cast<int>(found_.size()) - found_begin, admits});
  Claim(sequence, start, start + count);
}

// Tokens that nobody else could use go to those drafted, the oldest first.
void Scheduler::GrowDrafts() {
  for (size_t i = decode_count_; i < draft_.size() && tokens_left_ > 0; ++i) {
    Draft& draft = draft_[i];
    if (OwesLogprobs(*draft.sequence)) continue;
    const int end = draft.start + draft.count;
    if (const int more = Grow(draft); more > 0) Claim(draft.sequence, end, end + more);
  }
}

// By as many tokens as are known and find room. Returns how many.
int Scheduler::Grow(Draft& draft) {
  const int end = draft.start + draft.count;
  const int blocks = BlocksFor(end);
  const int more =
      std::min({tokens_left_, config_.chunk_tokens_max - draft.count, draft.sequence->known() - end,
                (blocks + room_) * config_.block_size - end});
  if (more <= 0) return 0;
  draft.count += more;
  tokens_left_ -= more;
  room_ -= BlocksFor(end + more) - blocks;
  return more;
}

// Prefix index: appends to found_ what is computed of the sequence's blocks from `begin_block`.
// Returns how many.
int Scheduler::Lookup(Sequence* sequence, int begin_block) {
  if (!config_.prefix_caching) return 0;
  const int end_block = CachedTokensMax(*sequence) / config_.block_size;
  ExtendKeys(sequence, end_block);
  ContentId parent = begin_block == 0 ? kRootContent : sequence->contents[begin_block - 1];
  int block = begin_block;
  for (; block < end_block; ++block) {
    const auto found = blocks_.Find(sequence->keys[block], parent, TokensOfBlock(*sequence, block),
                                    sequence->request->spec.cache_salt);
    if (!found.has_value()) break;
    parent = found->content;
    found_.push_back(*found);
  }
  return block - begin_block;
}

// Found blocks that nobody refers to count as free until they are referenced.
int Scheduler::UnusedAmongFound(int found_begin) const {
  return static_cast<int>(
      std::count_if(found_.begin() + found_begin, found_.end(),
                    [this](const auto& f) { return blocks_.references(f.block) == 0; }));
}

// The last token is always computed: its logits are needed. So are the rows whose log-probabilities
// are owed, and all whose mean is the embedding.
int Scheduler::CachedTokensMax(const Sequence& sequence) const {
  const int tokens = static_cast<int>(sequence.tokens.size());
  if (IsMutant(Mutant::kCacheWholePrompt)) return tokens;
  if (sequence.request->spec.pooling == Pooling::kMean && !IsMutant(Mutant::kPoolCachedPrompt)) {
    return 0;
  }
  if (OwesLogprobs(sequence) && !IsMutant(Mutant::kSkipOwedLogprobs)) {
    return static_cast<int>(sequence.request->prompt_logprobs.size());
  }
  return tokens - 1;
}

bool Scheduler::OwesLogprobs(const Sequence& sequence) const {
  const Request& request = *sequence.request;
  return request.spec.sampling.prompt_logprobs >= 0 && request.leader == &sequence &&
         static_cast<int>(request.prompt_logprobs.size()) < sequence.prompt_count - 1;
}

int Scheduler::ChunkTokensMax(const Sequence& sequence) const {
  return OwesLogprobs(sequence) ? std::min(config_.chunk_tokens_max, logprob_rows_left_)
                                : config_.chunk_tokens_max;
}

// Whether the block that begins at `start` is being computed for another sequence: waiting for it
// is cheaper than computing it too. The other one is ahead on the same prefix, so there are no
// circles.
bool Scheduler::ClaimedByOther(Sequence* sequence, int start) {
  const int block = start / config_.block_size;
  if (!config_.prefix_caching || start % config_.block_size != 0 ||
      start + config_.block_size > CachedTokensMax(*sequence)) {
    return false;
  }
  ExtendKeys(sequence, block + 1);
  sequence->awaited_block = block;
  return StillAwaits(*sequence);
}

// Without looking anything else up: many may wait for one long prefix.
bool Scheduler::StillAwaits(Sequence& sequence) const {
  if (sequence.awaited_block < 0) return false;
  const auto it = claims_.find(sequence.keys[sequence.awaited_block]);
  if (it != claims_.end() && it->second != &sequence) return true;
  sequence.awaited_block = -1;
  return false;
}

void Scheduler::Claim(Sequence* sequence, int start, int end) {
  if (!config_.prefix_caching) return;
  const int full = static_cast<int>(sequence->tokens.size()) / config_.block_size;
  const int begin_block = start / config_.block_size;
  const int end_block = std::min(BlocksFor(end), full);
  if (begin_block >= end_block) return;
  ExtendKeys(sequence, end_block);
  for (int block = begin_block; block < end_block; ++block) {
    claims_.try_emplace(sequence->keys[block], sequence);
  }
  if (sequence->claims_begin == sequence->claims_end) sequence->claims_begin = begin_block;
  sequence->claims_end = end_block;
}

// Nothing can run and nothing is in flight: blocks are spread over sequences none of which can go
// on. The last in order gives its blocks up; if there is only the first, the pool is too small for
// it.
bool Scheduler::ResolveStall(std::vector<SeqEvent>& events) {
  Sequence* head = running_.empty() ? nullptr : running_.front();
  if (!queue_.empty() && (head == nullptr || ByOrder()(queue_.first(), head))) {
    head = queue_.first();
  }
  if (head == nullptr) return false;
  if (Sequence* victim = VictimAfter(head); victim != nullptr) {
    Preempt(victim, events);
  } else if (head->forked) {
    Preempt(head, events);
  } else if (head->generated() > 0) {
    End(head, FinishReason::kLength, absl::OkStatus(), {}, events);
  } else {
    End(head, FinishReason::kError,
        absl::ResourceExhaustedError(StrCat("the KV pool of ", blocks_.total() * config_.block_size,
                                            " tokens cannot hold the prompt of ",
                                            head->prompt_count)),
        {}, events);
  }
  return true;
}

}  // namespace staffel::sched
