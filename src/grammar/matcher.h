// One sequence's place in a grammar. Cheap to copy (a copy goes on from the same place). One thread
// at a time; matchers of one Automaton may be used by several threads at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "grammar/automaton.h"
#include "staffel/ids.h"
#include "staffel/status.h"

namespace staffel::grammar {

class Matcher {
 public:
  // Accepted tokens that Rollback can take back.
  static constexpr int kRollbackMax = 64;

  explicit Matcher(std::shared_ptr<Automaton> automaton);

  // Moves on by a token: one that the mask allows. An end token finishes the text.
  // InvalidArgument: the grammar does not allow it here; nothing changes.
  Status Accept(TokenId token);

  // Moves on by bytes of text, all or none; counts as one token for Rollback.
  // InvalidArgument: the grammar does not allow them here; nothing changes.
  Status AcceptBytes(std::string_view bytes);

  // Sets the bits of the tokens that may come next, clears the others; mask: [MaskWords of the
  // vocabulary]. End tokens are allowed exactly where the text is complete, and after an end token
  // they alone. Returns how many are allowed: 0 only when the vocabulary cannot spell what the
  // grammar wants.
  int FillMask(absl::Span<MaskWord> mask);

  // The same without a copy: null after an end token.
  std::shared_ptr<const TokenMask> Mask();

  // The text may end here.
  bool IsComplete();
  // An end token was accepted.
  bool finished() const { return finished_; }

  // Bytes that must come next, whatever the model says; at most `limit`. They end where the text
  // may end or may go on in two ways.
  std::string ForcedBytes(size_t limit = 1024);

  // Takes back the last `count` accepted tokens, count <= rollback_count().
  void Rollback(int count);
  int rollback_count() const { return static_cast<int>(history_.size()); }

 private:
  struct Place {
    StateTable::State state;
    bool finished;
  };
  // Brings the place into the automaton's present table. The automaton's mutex is held.
  void Refresh();
  bool Step(std::string_view bytes);

  std::shared_ptr<Automaton> automaton_;
  std::shared_ptr<StateTable> table_;
  StateTable::State state_;
  bool finished_ = false;
  std::vector<Place> history_;  // before each of the last tokens
};

}  // namespace staffel::grammar
