// A grammar as a recursive transition network over bytes (Woods 1970): each rule is a small
// nondeterministic automaton whose edges are byte ranges, empty moves, or calls of rules. Immutable
// once built. What runs it (automaton.h) keeps a stack of states to return to.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "grammar/expr.h"
#include "grammar/limits.h"
#include "staffel/status.h"

namespace staffel::grammar {

using StateId = int32_t;

struct Network {
  struct ByteEdge {
    uint8_t low, high;  // both ends belong to it
    StateId target;
  };
  struct Call {
    RuleId rule;
    StateId target;  // where the caller goes on
  };
  enum Flag : uint8_t {
    // A rule ends here; the state has no edges. A call that returns here need not be remembered.
    kEnd = 1,
    // Reads every character that may stand unescaped in a JSON string, all by way of one target;
    // its only edges are those and escapes.
    kAnyJsonChar = 4,
    // Has an edge for a byte that begins such a character (not set with kAnyJsonChar).
    kReadsJsonChar = 8,
  };

  // Edges of state s: [begin[s], begin[s + 1]) of each list.
  std::vector<uint32_t> byte_begin, empty_begin, call_begin;
  std::vector<ByteEdge> bytes;
  std::vector<StateId> empties;
  std::vector<Call> calls;
  std::vector<uint8_t> flags;
  std::vector<StateId> rule_start;
  RuleId root = 0;
  // Bytes that no edge tells apart are of one class.
  std::array<uint8_t, 256> byte_class;
  std::vector<uint8_t> class_byte;  // one byte of each class
  int64_t shortest = 0;             // bytes of the shortest text

  int state_count() const { return static_cast<int>(flags.size()); }
  absl::Span<const ByteEdge> bytes_of(StateId s) const {
    return {bytes.data() + byte_begin[s], byte_begin[s + 1] - byte_begin[s]};
  }
  absl::Span<const StateId> empties_of(StateId s) const {
    return {empties.data() + empty_begin[s], empty_begin[s + 1] - empty_begin[s]};
  }
  absl::Span<const Call> calls_of(StateId s) const {
    return {calls.data() + call_begin[s], call_begin[s + 1] - call_begin[s]};
  }
};

// Bytes that begin a character which may stand unescaped in a JSON string.
bool BeginsJsonChar(uint8_t byte);

// Lowers rules to a network, takes away what leads nowhere, and checks it.
// InvalidArgument: the root has no text, its shortest text is above the limit, a rule calls itself
// before it has read anything (left recursion), or a rule is not defined.
// ResourceExhausted: more states than the limit.
Result<Network> BuildNetwork(const ExprPool& pool, RuleId root);

}  // namespace staffel::grammar
