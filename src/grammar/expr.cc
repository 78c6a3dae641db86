#include "grammar/expr.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/strings.h"
#include "base/utf8.h"

namespace staffel::grammar {
namespace {

constexpr int64_t kWeightMax = int64_t{1} << 40;
constexpr int64_t kShareWeight = 24;

int64_t SaturatedAdd(int64_t a, int64_t b) { return std::min(kWeightMax, a + b); }

void AppendKey(std::string& key, int64_t value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string KeyOf(const Expr& expr) {
  std::string key;
  key += static_cast<char>(expr.kind);
  key += static_cast<char>(expr.encoding);
  switch (expr.kind) {
    case Expr::Kind::kLiteral:
      key += expr.text;
      break;
    case Expr::Kind::kChars:
      for (const CodeRange& range : expr.chars->ranges()) {
        AppendKey(key, int64_t{range.first} << 32 | range.last);
      }
      break;
    case Expr::Kind::kDfa:
      AppendKey(key, reinterpret_cast<int64_t>(expr.dfa.get()));
      break;
    default:
      AppendKey(key, int64_t{expr.min} << 32 | static_cast<uint32_t>(expr.max));
      AppendKey(key, expr.rule);
      for (ExprId child : expr.children) AppendKey(key, child);
  }
  return key;
}

}  // namespace

ExprId ExprPool::Add(Expr expr) {
  std::string key = KeyOf(expr);
  if (auto found = known_.find(key); found != known_.end()) return found->second;
  if (static_cast<int64_t>(exprs_.size()) >= limits_.expressions) {
    if (status_.ok()) {
      status_ = absl::ResourceExhaustedError(StrCat(
          "the grammar needs more than ", limits_.expressions, " expressions; make it smaller"));
    }
    return Never();
  }
  expr.weight = WeightOf(expr);
  const ExprId id = static_cast<ExprId>(exprs_.size());
  exprs_.push_back(std::move(expr));
  known_.emplace(std::move(key), id);
  return id;
}

int64_t ExprPool::WeightOf(const Expr& expr) const {
  switch (expr.kind) {
    case Expr::Kind::kLiteral:
      return static_cast<int64_t>(expr.text.size());
    case Expr::Kind::kChars: {
      const auto& ranges = expr.chars->ranges();
      const int64_t bytes = ranges.back().last < 0x80 ? 1 : 8 + static_cast<int64_t>(ranges.size());
      return expr.encoding == Encoding::kRaw ? bytes : bytes + 8;
    }
    case Expr::Kind::kDfa:
      return 4 * static_cast<int64_t>(expr.dfa->states().size()) + 1;
    case Expr::Kind::kRepeat: {
      const int64_t times = std::clamp(expr.max == kUnbounded ? expr.min + 1 : expr.max, 1, 64);
      return std::min(kWeightMax, exprs_[expr.children[0]].weight * times);
    }
    default: {
      int64_t weight = 1;
      for (ExprId child : expr.children) weight = SaturatedAdd(weight, exprs_[child].weight);
      return weight;
    }
  }
}

ExprId ExprPool::Literal(std::string_view bytes) {
  if (bytes.empty()) return Empty();
  return Add({.kind = Expr::Kind::kLiteral, .text = std::string(bytes)});
}

ExprId ExprPool::Chars(const CharSet& set, Encoding encoding) {
  if (set.empty()) return Never();
  const CodeRange first = set.ranges().front();
  if (encoding == Encoding::kRaw && set.ranges().size() == 1 && first.first == first.last) {
    std::string bytes;
    AppendUtf8(bytes, first.first);
    return Literal(bytes);
  }
  return Add({.kind = Expr::Kind::kChars,
              .encoding = encoding,
              .chars = std::make_shared<const CharSet>(set)});
}

ExprId ExprPool::Sequence(absl::Span<const ExprId> parts) {
  std::vector<ExprId> flat;
  std::string literal;
  const auto flush = [&] {
    if (!literal.empty()) flat.push_back(Literal(literal));
    literal.clear();
  };
  const auto append = [&](ExprId part) {
    if (exprs_[part].kind == Expr::Kind::kLiteral) {
      literal += exprs_[part].text;
    } else if (part != Empty()) {
      flush();
      flat.push_back(part);
    }
  };
  for (ExprId part : parts) {
    if (part == Never()) return Never();
    if (exprs_[part].kind == Expr::Kind::kSequence) {
      const std::vector<ExprId> children = exprs_[part].children;  // Literal() may move the pool
      for (ExprId child : children) append(child);
    } else {
      append(part);
    }
  }
  flush();
  if (flat.empty()) return Empty();
  if (flat.size() == 1) return flat[0];
  return Add({.kind = Expr::Kind::kSequence, .children = std::move(flat)});
}

ExprId ExprPool::Choice(absl::Span<const ExprId> alternatives) {
  std::vector<ExprId> flat;
  for (ExprId alternative : alternatives) {
    const Expr& expr = exprs_[alternative];
    if (expr.kind == Expr::Kind::kChoice) {
      flat.insert(flat.end(), expr.children.begin(), expr.children.end());
    } else if (alternative != Never()) {
      flat.push_back(alternative);
    }
  }
  std::sort(flat.begin(), flat.end());
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return Never();
  if (flat.size() == 1) return flat[0];
  return Add({.kind = Expr::Kind::kChoice, .children = std::move(flat)});
}

ExprId ExprPool::Repeat(ExprId part, int min, int max) {
  if (part == Empty() || max == 0) return Empty();
  if (part == Never()) return min == 0 ? Empty() : Never();
  if (min == 1 && max == 1) return part;
  if (min == 0 && max == 1) return Optional(part);
  return Add({.kind = Expr::Kind::kRepeat, .children = {part}, .min = min, .max = max});
}

ExprId ExprPool::Dfa(std::shared_ptr<const CharDfa> dfa, Encoding encoding) {
  if (dfa->IsEmpty()) return Never();
  return Add({.kind = Expr::Kind::kDfa, .encoding = encoding, .dfa = std::move(dfa)});
}

ExprId ExprPool::Rule(RuleId rule) { return Add({.kind = Expr::Kind::kRule, .rule = rule}); }

RuleId ExprPool::NewRule(std::string_view name) {
  rules_.push_back({std::string(name), -1});
  return static_cast<RuleId>(rules_.size()) - 1;
}

void ExprPool::Define(RuleId rule, ExprId body) { rules_[rule].body = body; }

ExprId ExprPool::Share(ExprId expr, std::string_view name) {
  if (exprs_[expr].kind == Expr::Kind::kRule || exprs_[expr].weight < kShareWeight) return expr;
  auto [found, added] = shared_.emplace(expr, -1);
  if (added) {
    found->second = NewRule(name);
    Define(found->second, expr);
  }
  return Rule(found->second);
}

namespace {

// Thompson's construction over characters.
class NfaBuilder {
 public:
  NfaBuilder(const ExprPool& pool, CharNfa& nfa) : pool_(pool), nfa_(nfa) {}

  Status Lower(ExprId id, int from, int to) {
    const Expr& expr = pool_.expr(id);
    if (static_cast<int64_t>(nfa_.states.size()) > 4 * pool_.limits().dfa_states) {
      return absl::ResourceExhaustedError(StrCat("a pattern has repetitions that need more than ",
                                                 4 * pool_.limits().dfa_states,
                                                 " states; make them smaller"));
    }
    switch (expr.kind) {
      case Expr::Kind::kEmpty:
        nfa_.states[from].empty.push_back(to);
        return absl::OkStatus();
      case Expr::Kind::kNever:
        return absl::OkStatus();
      case Expr::Kind::kLiteral:
        return LowerLiteral(expr.text, from, to);
      case Expr::Kind::kChars:
        for (const CodeRange& range : expr.chars->ranges()) {
          nfa_.states[from].edges.push_back({range, to});
        }
        return absl::OkStatus();
      case Expr::Kind::kSequence:
        for (size_t i = 0; i < expr.children.size(); ++i) {
          const int next = i + 1 < expr.children.size() ? nfa_.AddState() : to;
          STAFFEL_RETURN_IF_ERROR(Lower(expr.children[i], from, next));
          from = next;
        }
        return absl::OkStatus();
      case Expr::Kind::kChoice:
        for (ExprId child : expr.children) {
          STAFFEL_RETURN_IF_ERROR(Lower(child, from, to));
        }
        return absl::OkStatus();
      case Expr::Kind::kRepeat:
        return LowerRepeat(expr, from, to);
      case Expr::Kind::kDfa:
        LowerDfa(*expr.dfa, from, to);
        return absl::OkStatus();
      case Expr::Kind::kRule:
        break;
    }
    return absl::InvalidArgumentError("a rule cannot be part of a pattern");
  }

 private:
  Status LowerLiteral(std::string_view text, int from, int to) {
    if (!IsValidUtf8(text)) return absl::InvalidArgumentError("a literal is not valid UTF-8");
    for (size_t i = 0; i < text.size();) {
      const uint32_t c = ReadUtf8(text, &i);
      const int next = i < text.size() ? nfa_.AddState() : to;
      nfa_.states[from].edges.push_back({{c, c}, next});
      from = next;
    }
    return absl::OkStatus();
  }

  Status LowerRepeat(const Expr& expr, int from, int to) {
    const ExprId part = expr.children[0];
    int state = nfa_.AddState();
    nfa_.states[from].empty.push_back(state);
    for (int i = 0; i < expr.min; ++i) {
      const int next = nfa_.AddState();
      STAFFEL_RETURN_IF_ERROR(Lower(part, state, next));
      state = next;
    }
    if (expr.max == kUnbounded) {
      const int loop = nfa_.AddState();
      nfa_.states[state].empty.push_back(loop);
      STAFFEL_RETURN_IF_ERROR(Lower(part, loop, loop));
      state = loop;
    }
    for (int i = expr.min; i < expr.max; ++i) {
      nfa_.states[state].empty.push_back(to);
      const int next = nfa_.AddState();
      STAFFEL_RETURN_IF_ERROR(Lower(part, state, next));
      state = next;
    }
    nfa_.states[state].empty.push_back(to);
    return absl::OkStatus();
  }

  void LowerDfa(const CharDfa& dfa, int from, int to) {
    const int base = static_cast<int>(nfa_.states.size());
    for (size_t i = 0; i < dfa.states().size(); ++i) nfa_.AddState();
    nfa_.states[from].empty.push_back(base);
    for (size_t s = 0; s < dfa.states().size(); ++s) {
      for (const CharDfa::Edge& edge : dfa.states()[s].edges) {
        nfa_.states[base + s].edges.push_back({edge.range, base + edge.target});
      }
      if (dfa.states()[s].accepts) nfa_.states[base + s].empty.push_back(to);
    }
  }

  const ExprPool& pool_;
  CharNfa& nfa_;
};

}  // namespace

Result<CharDfa> ToDfa(const ExprPool& pool, ExprId expr) {
  STAFFEL_RETURN_IF_ERROR(pool.status());
  CharNfa nfa;
  nfa.start = nfa.AddState();
  nfa.end = nfa.AddState();
  STAFFEL_RETURN_IF_ERROR(NfaBuilder(pool, nfa).Lower(expr, nfa.start, nfa.end));
  return nfa.Determinize(pool.limits().dfa_states);
}

}  // namespace staffel::grammar
