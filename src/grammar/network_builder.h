// Lowers expressions to the raw edges of a network. Part of network.cc's work; one thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "grammar/expr.h"
#include "grammar/network.h"
#include "grammar/utf8_ranges.h"
#include "staffel/status.h"

namespace staffel::grammar {

struct RawEdge {
  enum class Kind : uint8_t { kBytes, kEmpty, kCall };
  StateId from, to;
  RuleId rule = -1;  // of a call
  Kind kind = Kind::kEmpty;
  uint8_t low = 0, high = 0;
};

class NetworkBuilder {
 public:
  explicit NetworkBuilder(const ExprPool& pool) : pool_(pool) {}

  // Lowers `root` and every rule that it reaches.
  Status Run(RuleId root);

  struct Rule {
    StateId start = -1, end = -1;
    std::string name;
  };
  std::vector<Rule> rules;  // those of the pool first, in its numbering; start < 0: not reached
  std::vector<RawEdge> edges;
  std::vector<uint8_t> flags;  // of Network::Flag: kEnd and kAnyJsonChar

 private:
  StateId AddState(uint8_t flag = 0) {
    flags.push_back(flag);
    return static_cast<StateId>(flags.size()) - 1;
  }
  void AddEmpty(StateId from, StateId to) { edges.push_back({from, to}); }
  void AddBytes(StateId from, StateId to, uint8_t low, uint8_t high) {
    edges.push_back({from, to, -1, RawEdge::Kind::kBytes, low, high});
  }
  void AddCall(StateId from, StateId to, RuleId rule);
  RuleId NewRule(std::string name);

  Status Lower(ExprId id, StateId from, StateId to);
  Status LowerChoice(const Expr& expr, StateId from, StateId to);
  Status LowerDfa(const Expr& expr, StateId from, StateId to);
  void LowerLiterals(absl::Span<const ExprId> literals, StateId from, StateId to);
  void LowerChars(const CharSet& set, Encoding encoding, StateId from, StateId to);
  void LowerRawChars(const CharSet& set, StateId from, StateId to);
  void LowerEscapes(const CharSet& set, StateId from, StateId to);
  void LowerEveryHexEscape(StateId after_u, StateId to);
  void LowerSequences(const std::vector<std::vector<ByteSpan>>& sequences, StateId from,
                      StateId to);

  Status LowerRepeat(const Expr& expr, StateId from, StateId to);
  // Rules that say a part exactly `count` times, or up to that often.
  RuleId Exactly(RuleId part, int count);
  RuleId UpTo(RuleId part, int count);
  void LowerExactly(RuleId part, int count, StateId from, StateId to);
  void LowerUpTo(RuleId part, int count, StateId from, StateId to);
  Status CheckSize() const;

  const ExprPool& pool_;
  std::vector<RuleId> open_;  // reached, not lowered
  absl::flat_hash_map<ExprId, RuleId> part_rules_;
  std::map<std::pair<RuleId, int>, RuleId> exactly_, up_to_;
  std::map<std::pair<CharSet, Encoding>, RuleId> char_rules_;
};

}  // namespace staffel::grammar
