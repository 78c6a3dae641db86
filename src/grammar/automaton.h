// A grammar made deterministic while it is used. A state is the set of all ways in which the text
// so far can be read: each a state of the network and a stack of states to return to. States,
// stacks and moves are kept once found, and so are the masks of allowed tokens, so that in the long
// run a step is a table look-up and a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/span.h"
#include "grammar/grammar.h"
#include "grammar/vocabulary.h"

namespace staffel::grammar {

// States found so far. Names of states hold within one table. Not thread-safe: its Automaton locks.
class StateTable {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;  // no text goes on from here

  StateTable(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  State start() const { return start_; }
  State Next(State state, uint8_t byte) {
    const int32_t known = rows_[static_cast<size_t>(state) * classes_ + byte_class_[byte]];
    return known != kUnknown ? known : Compute(state, byte);
  }
  // The text may end in this state.
  bool complete(State state) const { return states_[state].complete; }
  // The byte that any text must go on with; -1: there are several, or the text may end.
  int ForcedByte(State state) const;
  std::shared_ptr<const TokenMask> Mask(State state);
  // The state here that reads as `state` does in another table of the same grammar.
  State Import(const StateTable& other, State state);
  size_t bytes() const;  // of memory, about

 private:
  static constexpr int32_t kUnknown = -2;
  static constexpr int32_t kNoStack = -1;
  // Which characters that may stand unescaped in a JSON string the state reads.
  enum class PlainKind : uint8_t { kNone, kSome, kAll };
  struct Configuration {
    StateId state;
    int32_t stack;
    auto operator<=>(const Configuration&) const = default;
  };
  struct Frame {
    StateId resume;
    int32_t below;
  };
  struct Entry {
    uint32_t begin, count;  // in configurations_
    State next_same_hash;
    PlainKind plain;
    bool complete;
    std::shared_ptr<const TokenMask> mask;
  };

  absl::Span<const Configuration> of(State state) const {
    return {configurations_.data() + states_[state].begin, states_[state].count};
  }
  State Compute(State state, uint8_t byte);
  int32_t Push(StateId resume, int32_t below);
  void Reach(StateId state, int32_t stack);
  bool Close();
  State Intern();
  PlainKind PlainKindOf() const;
  int PlainRun(State state, bool* exact);
  void Walk(const std::vector<Vocabulary::Node>& trie, State state, std::vector<MaskWord>& words);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  const Network& network_;
  std::array<uint8_t, 256> byte_class_;
  size_t classes_;
  std::vector<uint8_t> plain_ascii_classes_;
  std::vector<int32_t> rows_;  // [states, classes]: state, kDead or kUnknown
  std::vector<Entry> states_;
  std::vector<Configuration> configurations_;
  std::vector<Frame> frames_;
  absl::flat_hash_map<uint64_t, int32_t> frame_ids_;
  absl::flat_hash_map<uint64_t, State> by_hash_;
  size_t mask_bytes_ = 0;
  State start_ = kDead;

  // Of the closure being computed.
  std::vector<Configuration> reached_, closed_;
  absl::flat_hash_set<uint64_t> reached_set_;
  bool complete_ = false;
  std::vector<State> path_;  // of Walk: state after each byte
};

// One grammar over one vocabulary, shared by all matchers of it. Thread-safe.
class Automaton {
 public:
  Automaton(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const Vocabulary> vocabulary);

  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  friend class Matcher;
  // The table to use, a fresh one when the last has outgrown Limits::cache_bytes.
  std::shared_ptr<StateTable> Current() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  absl::Mutex mutex_;  // over the contents of all tables too, older ones included
  std::shared_ptr<StateTable> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace staffel::grammar
