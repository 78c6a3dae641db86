// The grammars of a worker's sequences, where they stand, and the masks for their next draws. Masks
// are worked out on a thread of its own while the step computes; so are grammars that are new here.
// Owned by a worker, whose thread makes all calls; the thread begins with the first grammar.
#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "staffel/grammar.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel {

class GrammarMasks {
 public:
  GrammarMasks() = default;
  ~GrammarMasks();
  GrammarMasks(const GrammarMasks&) = delete;
  GrammarMasks& operator=(const GrammarMasks&) = delete;

  // Forgets all sequences. `grammars` may be null: then every grammar is an error of its sequence.
  void Reset(std::shared_ptr<grammar::Grammars> grammars);
  // The sequence in a slot has a grammar, and these tokens of its answer are known. may_force:
  // where the grammar leaves no choice, nothing need be drawn.
  void Enter(Slot slot, std::shared_ptr<const grammar::GrammarSpec> spec,
             std::vector<TokenId> generated, bool may_force);
  void Leave(Slot slot) { sequences_.erase(slot); }
  bool empty() const { return sequences_.empty(); }

  // Begins with the masks of those of the slots that have a grammar. Until Wait no other call.
  void Prepare(absl::Span<const Slot> slots);
  void Wait();

  // Behind Wait, of a slot that was prepared: the tokens that must come next, if there is no
  // choice; then there is no mask. Empty too where the sequence has no grammar.
  absl::Span<const TokenId> Forced(Slot slot) const;
  // Likewise: the tokens that may be drawn; null: the sequence has no grammar. Errors: the grammar
  // cannot be used here, or no token of the vocabulary may follow.
  Result<std::shared_ptr<const grammar::TokenMask>> Mask(Slot slot) const;
  // A token was drawn for the slot, or forced.
  void Append(Slot slot, TokenId token);

 private:
  struct Sequence {
    std::shared_ptr<const grammar::GrammarSpec> spec;
    std::vector<TokenId> pending;  // of the answer, not yet told to the grammar
    std::unique_ptr<grammar::SequenceGrammar> grammar;
    bool may_force = false;
    std::shared_ptr<const grammar::TokenMask> mask;  // null where a token is forced
    Status status;
  };
  void Advance(Sequence& sequence);
  void Loop();

  std::shared_ptr<grammar::Grammars> grammars_;
  std::map<Slot, Sequence> sequences_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Sequence*> work_;  // guarded by mutex_, and what it points to while it is not empty
  bool stop_ = false;            // guarded by mutex_
  std::thread thread_;
};

}  // namespace staffel
