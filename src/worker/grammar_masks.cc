#include "worker/grammar_masks.h"

#include <utility>

#include "base/thread.h"

namespace staffel {

GrammarMasks::~GrammarMasks() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void GrammarMasks::Reset(std::shared_ptr<grammar::Grammars> grammars) {
  sequences_.clear();
  grammars_ = std::move(grammars);
}

void GrammarMasks::Enter(Slot slot, std::shared_ptr<const grammar::GrammarSpec> spec,
                         std::vector<TokenId> generated, bool may_force) {
  Sequence& sequence = sequences_[slot];
  sequence.spec = std::move(spec);
  sequence.pending = std::move(generated);
  sequence.may_force = may_force;
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
}

void GrammarMasks::Prepare(absl::Span<const Slot> slots) {
  if (sequences_.empty()) return;
  std::vector<Sequence*> work;
  for (Slot slot : slots) {
    if (const auto found = sequences_.find(slot); found != sequences_.end()) {
      work.push_back(&found->second);
    }
  }
  if (work.empty()) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    work_ = std::move(work);
  }
  changed_.notify_all();
}

void GrammarMasks::Wait() {
  if (sequences_.empty()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return work_.empty(); });
}

absl::Span<const TokenId> GrammarMasks::Forced(Slot slot) const {
  const auto found = sequences_.find(slot);
  if (found == sequences_.end() || !found->second.status.ok() || !found->second.may_force)
    return {};
  return found->second.grammar->Forced();
}

Result<std::shared_ptr<const grammar::TokenMask>> GrammarMasks::Mask(Slot slot) const {
  const auto found = sequences_.find(slot);
  if (found == sequences_.end()) return std::shared_ptr<const grammar::TokenMask>();
  STAFFEL_RETURN_IF_ERROR(found->second.status);
  return found->second.mask;
}

void GrammarMasks::Append(Slot slot, TokenId token) {
  const auto found = sequences_.find(slot);
  if (found != sequences_.end()) found->second.pending.push_back(token);
}

void GrammarMasks::Advance(Sequence& sequence) {
  if (!sequence.status.ok()) return;
  if (sequence.grammar == nullptr) {
    if (grammars_ == nullptr) {
      sequence.status = absl::UnimplementedError("this worker has no grammars");
      return;
    }
    Result<std::unique_ptr<grammar::SequenceGrammar>> begun = grammars_->Begin(*sequence.spec);
    sequence.status = begun.status();
    if (!begun.ok()) return;
    sequence.grammar = *std::move(begun);
  }
  for (TokenId token : sequence.pending) {
    sequence.status = sequence.grammar->Append(token);
    if (!sequence.status.ok()) return;
  }
  sequence.pending.clear();
  sequence.mask = nullptr;
  if (sequence.may_force && !sequence.grammar->Forced().empty()) return;
  sequence.mask = sequence.grammar->Mask();
  if (sequence.mask->count == 0) {
    sequence.status = absl::InternalError(
        "no token of the model's vocabulary can go on with what the grammar asks for");
  }
}

void GrammarMasks::Loop() {
  NameThread("grammar");
  PreferShortSlices();
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !work_.empty(); });
    if (stop_) return;
    const std::vector<Sequence*> work = work_;
    lock.unlock();
    for (Sequence* sequence : work) Advance(*sequence);
    lock.lock();
    work_.clear();
    changed_.notify_all();
  }
}

}  // namespace staffel
