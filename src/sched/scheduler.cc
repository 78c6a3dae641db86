#include "sched/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"
#include "sched/mutation.h"

namespace staffel::sched {

#if defined(STAFFEL_MUTANTS)
Mutant active_mutant = Mutant::kNone;
int weak_hash_bits = -1;
#endif

namespace {

void InsertByOrder(std::vector<Sequence*>& list, Sequence* sequence) {
  list.insert(std::lower_bound(list.begin(), list.end(), sequence, ByOrder()), sequence);
}

void EraseByOrder(std::vector<Sequence*>& list, Sequence* sequence) {
  const auto it = std::lower_bound(list.begin(), list.end(), sequence, ByOrder());
  STAFFEL_CHECK(it != list.end() && *it == sequence);
  list.erase(it);
}

}  // namespace

Scheduler::Scheduler(const Config& config)
    : config_(config),
      blocks_(config.block_count, config.block_size),
      costs_(config),
      epoch_(config.first_epoch) {
  STAFFEL_CHECK(config.Validate().ok()) << config.Validate();
  for (int i = config_.max_sequences - 1; i >= 0; --i) free_slots_.emplace_back(i);
  stats_.blocks_total = config.block_count;
}

Status Scheduler::Check(const Config& config, const GenerateRequest& request) {
  const auto refuse = [](const auto&... pieces) {
    return absl::InvalidArgumentError(StrCat(pieces...));
  };
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t kv_tokens = int64_t{config.block_count} * config.block_size;
  if (prompt == 0) return refuse("the prompt is empty; send at least one token");
  if (request.n < 1) return refuse("n is ", request.n, "; it must be at least 1");
  if (request.max_tokens < 0) {
    return refuse("max_tokens is ", request.max_tokens, "; it must be at least 0");
  }
  if (request.pooling != Pooling::kNone && (request.n != 1 || request.max_tokens != 0)) {
    return refuse("an embedding has n 1 and max_tokens 0, not ", request.n, " and ",
                  request.max_tokens);
  }
  if (prompt + (request.max_tokens > 0 ? 1 : 0) > config.max_model_len) {
    return refuse("the prompt has ", prompt, " tokens; the context holds ", config.max_model_len,
                  " of prompt and answer, so shorten it");
  }
  if (prompt > kv_tokens) {
    return refuse("the prompt has ", prompt, " tokens; the KV pool holds ", kv_tokens,
                  ", so shorten it or start the server with more KV memory");
  }
  return absl::OkStatus();
}

Status Scheduler::Submit(GenerateRequest spec) {
  STAFFEL_RETURN_IF_ERROR(Check(config_, spec));
  auto [it, inserted] = requests_.try_emplace(spec.id);
  if (!inserted) {
    return absl::AlreadyExistsError(StrCat("request ", spec.id.value, " exists already"));
  }
  it->second = std::make_unique<Request>();
  Request& request = *it->second;
  std::vector<TokenId> prompt = std::move(spec.prompt);
  const int prompt_count = static_cast<int>(prompt.size());
  const uint64_t arrival = ++arrivals_;
  request.sequences.resize(spec.n);
  request.unreleased = spec.n;
  for (int i = 0; i < spec.n; ++i) {
    Sequence& sequence = request.sequences[i];
    sequence.request = &request;
    sequence.index = i;
    sequence.priority = spec.priority;
    sequence.arrival = arrival;
    sequence.prompt_count = prompt_count;
    sequence.generated_max = std::min(spec.max_tokens, config_.max_model_len - prompt_count);
    sequence.state = SequenceState::kAwaitingPrompt;
  }
  waiting_count_ += spec.n;
  request.spec = std::move(spec);
  request.leader = &request.sequences[0];
  request.leader->tokens = std::move(prompt);
  std::vector<SeqEvent> none;
  Enqueue(request.leader, none);
  STAFFEL_CHECK(none.empty());
  return absl::OkStatus();
}

void Scheduler::Cancel(RequestId id, int index, std::vector<SeqEvent>& events) {
  const auto it = requests_.find(id);
  if (it == requests_.end() || IsMutant(Mutant::kDropCancel)) return;
  EndRequest(it->second.get(), index, FinishReason::kCancelled, absl::OkStatus(), events);
}

void Scheduler::Fail(const Status& error, std::vector<SeqEvent>& events) {
  for (auto it = requests_.begin(); it != requests_.end();) {
    const RequestId id = it->first;
    EndRequest(it->second.get(), -1, FinishReason::kError, error, events);
    it = requests_.upper_bound(id);
  }
}

void Scheduler::EndRequest(Request* request, int index, FinishReason reason, const Status& error,
                           std::vector<SeqEvent>& events) {
  ++request->unreleased;  // keeps it while we look at it
  // From the last to the first: the leader would hand the prompt over to one that is to end as
  // well.
  for (int i = static_cast<int>(request->sequences.size()) - 1; i >= 0; --i) {
    Sequence& sequence = request->sequences[i];
    if ((index >= 0 && index != i) || sequence.state == SequenceState::kEnded) continue;
    End(&sequence, reason, error, {}, events);
  }
  Unpin(request);
}

void Scheduler::BeginEpoch(const EpochSettings& settings, std::vector<SeqEvent>& events) {
  STAFFEL_CHECK_GT(settings.epoch, epoch_);
  epoch_ = settings.epoch;
  for (const LedgerEntry& entry : ledger_) {
    for (BlockId block : entry.copy_sources) blocks_.Release(block);
    for (const PlannedChunk& chunk : entry.chunks) --chunk.sequence->steps_in_flight;
  }
  ledger_.clear();
  std::vector<Sequence*> returning;
  for (Sequence* sequence : running_) returning.push_back(sequence);
  for (Sequence* sequence : std::exchange(draining_, {})) {
    if (sequence->state == SequenceState::kEnded) {
      sequence->promised = 0;
      Release(sequence);
    } else {
      returning.push_back(sequence);
    }
  }
  while (!queue_.empty()) {
    returning.push_back(queue_.first());
    Dequeue(queue_.first());
  }
  running_.clear();
  for (Sequence* sequence : returning) {
    Unclaim(sequence);
    ReleaseBlocks(sequence);
    sequence->slot = Slot();
    ResetProgress(sequence);
  }
  STAFFEL_CHECK(claims_.empty() && forked_.empty());
  config_.block_count = stats_.blocks_total = settings.block_count;
  if (!IsMutant(Mutant::kKeepLayoutOverEpochs)) {
    config_.micro_batches = settings.micro_batches;
    config_.promised_tokens_max = settings.promised_tokens_max;
    config_.relay_tokens = settings.relay_tokens;
  }
  STAFFEL_CHECK(config_.Validate().ok()) << config_.Validate();
  costs_ = CostModel(config_);  // other workers, other times
  blocks_.Reset(settings.block_count);
  digest_.Reset();
  free_slots_.clear();
  slots_to_release_.clear();
  for (int i = config_.max_sequences - 1; i >= 0; --i) free_slots_.emplace_back(i);
  for (Sequence* sequence : returning) Enqueue(sequence, events);
}

void Scheduler::SetState(Sequence* sequence, SequenceState state) {
  const auto waits = [](SequenceState s) {
    return s == SequenceState::kWaiting || s == SequenceState::kAwaitingPrompt;
  };
  waiting_count_ += waits(state) - waits(sequence->state);
  sequence->state = state;
}

void Scheduler::Enqueue(Sequence* sequence, std::vector<SeqEvent>& events) {
  SetState(sequence, SequenceState::kWaiting);
  queue_.Insert(sequence);
  if (sequence->HoldsBlocks()) InsertByOrder(forked_, sequence);
  if (BlocksFor(sequence->known()) <= blocks_.total()) return;
  if (sequence->generated() > 0) {
    End(sequence, FinishReason::kLength, absl::OkStatus(), {}, events);
  } else {
    End(sequence, FinishReason::kError,
        absl::ResourceExhaustedError(StrCat("the prompt has ", sequence->known(),
                                            " tokens; the KV pool has shrunk to ",
                                            blocks_.total() * config_.block_size)),
        {}, events);
  }
}

void Scheduler::Dequeue(Sequence* sequence) {
  queue_.Erase(sequence);
  if (sequence->HoldsBlocks()) EraseByOrder(forked_, sequence);
  if (sequence == blocked_head_) blocked_head_ = nullptr;
}

void Scheduler::Preempt(Sequence* sequence, std::vector<SeqEvent>& events) {
  if (sequence->state == SequenceState::kWaiting) {  // after a fork: it only loses its blocks
    Dequeue(sequence);
    Requeue(sequence, events);
    return;
  }
  ++stats_.preemptions;
  EraseByOrder(running_, sequence);
  Unclaim(sequence);
  SetState(sequence, SequenceState::kPreempted);
  if (sequence->steps_in_flight > 0) {
    draining_.push_back(sequence);
  } else {
    ReleaseSlot(sequence);
    Requeue(sequence, events);
  }
}

void Scheduler::Requeue(Sequence* sequence, std::vector<SeqEvent>& events) {
  ReleaseBlocks(sequence);
  ResetProgress(sequence);
  if (IsMutant(Mutant::kForgetPreemptedTokens)) sequence->tokens.resize(sequence->prompt_count);
  if (IsMutant(Mutant::kCountHitsAgain) && sequence->request->leader == nullptr) {
    sequence->request->counted = false;
    sequence->request->leader = sequence;
  }
  Enqueue(sequence, events);
}

void Scheduler::ResetProgress(Sequence* sequence) {
  sequence->promised = sequence->planned = sequence->computed = 0;
  sequence->relayed = 0;
  if (!IsMutant(Mutant::kForceAfterReturn)) sequence->forced_untold = 0;
  sequence->awaits_forced = sequence->follows_forced = false;
  if (!sequence->spoke) sequence->cached_tokens = 0;
}

void Scheduler::End(Sequence* sequence, FinishReason reason, const Status& error,
                    std::vector<GeneratedToken> last, std::vector<SeqEvent>& events) {
  switch (sequence->state) {
    case SequenceState::kAwaitingPrompt:
      break;
    case SequenceState::kWaiting:
      Dequeue(sequence);
      break;
    case SequenceState::kRunning:
      EraseByOrder(running_, sequence);
      Unclaim(sequence);
      if (sequence->steps_in_flight > 0) draining_.push_back(sequence);
      break;
    case SequenceState::kPreempted:
      break;
    case SequenceState::kEnded:
      STAFFEL_CHECK(false) << "a sequence ends once";
  }
  SetState(sequence, SequenceState::kEnded);
  SeqEvent event = MakeEvent(sequence);
  event.tokens = std::move(last);
  event.finish = reason;
  event.error = error;
  if (reason == FinishReason::kLength) event.embedding = std::move(sequence->request->embedding);
  events.push_back(std::move(event));
  CountFinish(reason);

  Request* request = sequence->request;
  ++request->unreleased;
  if (IsMutant(Mutant::kFreeBlocksInFlight)) ReleaseBlocks(sequence);
  if (IsMutant(Mutant::kReuseSlotInFlight) && sequence->slot.valid()) ReleaseSlot(sequence);
  if (request->leader == sequence) HandOverPrompt(request, events);
  if (sequence->steps_in_flight == 0) Release(sequence);
  Unpin(request);
}

// The leader has ended before the prompt was computed: the next one that awaits it takes over.
void Scheduler::HandOverPrompt(Request* request, std::vector<SeqEvent>& events) {
  const std::vector<TokenId>& tokens = request->leader->tokens;
  Sequence* next = nullptr;
  for (Sequence& sequence : request->sequences) {
    if (next == nullptr && sequence.state == SequenceState::kAwaitingPrompt) next = &sequence;
  }
  if (next != nullptr) {
    next->tokens.assign(tokens.begin(), tokens.begin() + next->prompt_count);
  }
  request->leader = next;
  if (next != nullptr) Enqueue(next, events);
}

void Scheduler::Release(Sequence* sequence) {
  ReleaseBlocks(sequence);
  if (sequence->slot.valid()) ReleaseSlot(sequence);
  Unpin(sequence->request);
}

void Scheduler::Unpin(Request* request) {
  if (--request->unreleased == 0) requests_.erase(request->spec.id);
}

void Scheduler::ReleaseBlocks(Sequence* sequence) {
  if (IsMutant(Mutant::kLeakBlock) && sequence->HoldsBlocks()) sequence->blocks.pop_back();
  for (auto it = sequence->blocks.rbegin(); it != sequence->blocks.rend(); ++it) {
    blocks_.Release(*it);
  }
  if (IsMutant(Mutant::kDoubleFree) && sequence->HoldsBlocks()) {
    blocks_.Release(sequence->blocks.front());
  }
  sequence->blocks.clear();
  sequence->contents.clear();
  sequence->forked = false;
}

void Scheduler::ReleaseSlot(Sequence* sequence) {
  if (IsMutant(Mutant::kReuseSlotInFlight)) {
    free_slots_.push_back(sequence->slot);
  } else {
    slots_to_release_.push_back(sequence->slot);
  }
  sequence->slot = Slot();
}

void Scheduler::Unclaim(Sequence* sequence) {
  for (int i = sequence->claims_begin; i < sequence->claims_end; ++i) {
    const auto it = claims_.find(sequence->keys[i]);
    if (it != claims_.end() && it->second == sequence) claims_.erase(it);
  }
  sequence->claims_begin = sequence->claims_end = 0;
}

SeqEvent Scheduler::MakeEvent(Sequence* sequence) {
  SeqEvent event;
  event.request = sequence->request->spec.id;
  event.index = sequence->index;
  if (!sequence->spoke) {
    sequence->spoke = event.first = true;
    event.cached_tokens = sequence->cached_tokens;
    if (sequence->request->leader == nullptr) {
      event.prompt_logprobs = sequence->request->prompt_logprobs;
    }
  }
  return event;
}

void Scheduler::CountFinish(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      ++stats_.finished_stop;
      break;
    case FinishReason::kLength:
      ++stats_.finished_length;
      break;
    case FinishReason::kCancelled:
      ++stats_.finished_cancelled;
      break;
    case FinishReason::kError:
      ++stats_.finished_error;
      break;
  }
}

absl::Span<const TokenId> Scheduler::TokensOfBlock(const Sequence& sequence, int block) const {
  return absl::MakeConstSpan(sequence.tokens)
      .subspan(block * config_.block_size, config_.block_size);
}

void Scheduler::ExtendKeys(Sequence* sequence, int block_count) {
  while (static_cast<int>(sequence->keys.size()) < block_count) {
    const int block = static_cast<int>(sequence->keys.size());
    const Hash128 parent = block == 0
                               ? RootKey(config_.hash_key, sequence->request->spec.cache_salt)
                               : sequence->keys.back();
    sequence->keys.push_back(ChainKey(config_.hash_key, parent, TokensOfBlock(*sequence, block)));
  }
}

int Scheduler::ExclusiveBlocks(const Sequence& sequence) const {
  return static_cast<int>(
      std::count_if(sequence.blocks.begin(), sequence.blocks.end(),
                    [this](BlockId block) { return blocks_.references(block) == 1; }));
}

const EngineStats& Scheduler::stats() {
  stats_.running = running_count();
  stats_.waiting = waiting_count();
  stats_.blocks_free = blocks_.blank_count();
  stats_.blocks_cached = blocks_.cached_count();
  return stats_;
}

}  // namespace staffel::sched
