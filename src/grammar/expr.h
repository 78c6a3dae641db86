// What every front end (JSON Schema, regular expressions, GBNF, choices) is turned into: rules
// whose right sides are expressions over characters. An expression is a node of a pool, named by
// its index; equal nodes are one. Built by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "grammar/char_dfa.h"
#include "grammar/char_set.h"
#include "grammar/limits.h"
#include "staffel/status.h"

namespace staffel::grammar {

using ExprId = int32_t;
using RuleId = int32_t;

// How a character becomes bytes.
enum class Encoding : uint8_t {
  kRaw,   // its UTF-8 form
  kJson,  // as between the quotes of a JSON string: raw, or an escape where RFC 8259 has one
};

inline constexpr int kUnbounded = -1;  // of repetitions

struct Expr {
  enum class Kind : uint8_t {
    kEmpty,    // the empty text
    kNever,    // no text at all
    kLiteral,  // `text`, bytes as they are
    kChars,    // one character of `chars`, in `encoding`
    kSequence,
    kChoice,
    kRepeat,  // children[0], min to max times (kUnbounded)
    kRule,    // what the rule says
    kDfa,     // the texts of a CharDfa, in `encoding`
  };
  Kind kind = Kind::kEmpty;
  Encoding encoding = Encoding::kRaw;
  std::string text;
  std::shared_ptr<const CharSet> chars;
  std::vector<ExprId> children;
  int min = 0, max = 0;
  RuleId rule = -1;
  std::shared_ptr<const CharDfa> dfa;
  int64_t weight = 1;  // about the automaton states that it takes
};

class ExprPool {
 public:
  explicit ExprPool(const Limits& limits) : limits_(limits) {}

  ExprId Empty() const { return 0; }
  ExprId Never() const { return 1; }
  ExprId Literal(std::string_view bytes);
  ExprId Chars(const CharSet& set, Encoding encoding);
  ExprId Sequence(absl::Span<const ExprId> parts);
  ExprId Sequence(std::initializer_list<ExprId> parts) {
    return Sequence(absl::MakeConstSpan(parts.begin(), parts.size()));
  }
  ExprId Choice(absl::Span<const ExprId> alternatives);
  ExprId Choice(std::initializer_list<ExprId> alternatives) {
    return Choice(absl::MakeConstSpan(alternatives.begin(), alternatives.size()));
  }
  ExprId Optional(ExprId part) { return Choice({part, Empty()}); }
  ExprId Repeat(ExprId part, int min, int max);
  ExprId Dfa(std::shared_ptr<const CharDfa> dfa, Encoding encoding);
  ExprId Rule(RuleId rule);

  // A rule without a right side yet; Define gives it one. `name` is for messages.
  RuleId NewRule(std::string_view name);
  void Define(RuleId rule, ExprId body);
  // The expression itself while it is small, else a rule that says it (one rule for one
  // expression), so that what is used often takes its states once.
  ExprId Share(ExprId expr, std::string_view name);

  const Expr& expr(ExprId id) const { return exprs_[id]; }
  int rule_count() const { return static_cast<int>(rules_.size()); }
  ExprId rule_body(RuleId rule) const { return rules_[rule].body; }  // -1: not defined
  const std::string& rule_name(RuleId rule) const { return rules_[rule].name; }
  const Limits& limits() const { return limits_; }
  // ResourceExhausted once the pool has outgrown its limits; what was made since then is kNever.
  const Status& status() const { return status_; }

 private:
  struct RuleEntry {
    std::string name;
    ExprId body = -1;
  };
  ExprId Add(Expr expr);
  int64_t WeightOf(const Expr& expr) const;

  Limits limits_;
  std::vector<Expr> exprs_ = {Expr{.kind = Expr::Kind::kEmpty}, Expr{.kind = Expr::Kind::kNever}};
  std::vector<RuleEntry> rules_;
  absl::flat_hash_map<std::string, ExprId> known_;
  absl::flat_hash_map<ExprId, RuleId> shared_;
  Status status_;
};

// The deterministic automaton of an expression over characters. InvalidArgument: the expression has
// rules (it is not regular as it stands) or literals that are not valid UTF-8. ResourceExhausted:
// more states than Limits::dfa_states.
Result<CharDfa> ToDfa(const ExprPool& pool, ExprId expr);

}  // namespace staffel::grammar
