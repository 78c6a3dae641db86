#include "grammar/gbnf.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"

namespace staffel::grammar {
namespace {

constexpr int64_t kCountMax = 1 << 30;

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}
bool BeginsName(char c) { return IsNameChar(c) && c != '.' && !(c >= '0' && c <= '9'); }

class Parser {
 public:
  Parser(ExprPool& pool, std::string_view source) : pool_(pool), text_(source) {}

  Result<RuleId> Run() {
    if (text_.size() > pool_.limits().source_bytes) {
      return absl::InvalidArgumentError(
          StrCat("the grammar has more than ", pool_.limits().source_bytes, " bytes"));
    }
    if (!IsValidUtf8(text_)) return Error("it is not valid UTF-8");
    for (SkipSpace(); !AtEnd(); SkipSpace()) STAFFEL_RETURN_IF_ERROR(Rule());
    const auto root = rules_.find("root");
    if (root == rules_.end() || pool_.rule_body(root->second) < 0) {
      return absl::InvalidArgumentError("the grammar has no rule \"root\"");
    }
    for (const auto& [name, rule] : rules_) {
      if (pool_.rule_body(rule) >= 0) continue;
      return absl::InvalidArgumentError(
          StrCat("the grammar uses the rule \"", name, "\", which it does not define"));
    }
    return root->second;
  }

 private:
  bool AtEnd() const { return position_ >= text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  bool Take(std::string_view what) {
    if (!text_.substr(std::min(position_, text_.size())).starts_with(what)) return false;
    position_ += what.size();
    return true;
  }
  void SkipSpace() {
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '#') {
        position_ = std::min(text_.find('\n', position_), text_.size());
      } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++position_;
      } else {
        return;
      }
    }
  }
  Status Error(std::string_view what) const {
    const size_t line =
        1 + std::count(text_.begin(), text_.begin() + std::min(position_, text_.size()), '\n');
    return absl::InvalidArgumentError(
        StrCat("the grammar cannot be used: ", what, " (line ", line, ")"));
  }

  std::string_view Name() {
    const size_t begin = position_;
    while (!AtEnd() && IsNameChar(Peek())) ++position_;
    return text_.substr(begin, position_ - begin);
  }

  RuleId RuleNamed(std::string_view name) {
    auto [found, added] = rules_.emplace(std::string(name), -1);
    if (added) found->second = pool_.NewRule(name);
    return found->second;
  }

  // At a name that "::=" follows.
  bool AtRule() {
    const size_t begin = position_;
    const bool named = BeginsName(Peek());
    if (named) Name();
    SkipSpace();
    const bool found = named && Take("::=");
    position_ = begin;
    return found;
  }

  Status Rule() {
    if (!BeginsName(Peek())) return Error("a rule must begin with its name");
    const std::string_view name = Name();
    SkipSpace();
    if (!Take("::=")) return Error(StrCat("\"::=\" is missing behind \"", name, "\""));
    const RuleId rule = RuleNamed(name);
    if (pool_.rule_body(rule) >= 0) return Error(StrCat("\"", name, "\" is defined twice"));
    STAFFEL_ASSIGN_OR_RETURN(const ExprId body, Alternatives(0));
    pool_.Define(rule, body);
    SkipSpace();
    if (!AtEnd() && !AtRule()) return Error(StrCat("\"", Peek(), "\" is not expected here"));
    return pool_.status();
  }

  Result<ExprId> Alternatives(int depth) {
    if (depth > pool_.limits().nesting) {
      return Error(StrCat("it nests more than ", pool_.limits().nesting, " groups"));
    }
    std::vector<ExprId> alternatives;
    do {
      std::vector<ExprId> parts;
      for (SkipSpace(); !AtEnd() && Peek() != '|' && Peek() != ')' && !AtRule(); SkipSpace()) {
        STAFFEL_ASSIGN_OR_RETURN(const ExprId part, Quantified(depth));
        parts.push_back(part);
      }
      alternatives.push_back(pool_.Sequence(parts));
    } while (Take("|"));
    return pool_.Choice(alternatives);
  }

  Result<ExprId> Quantified(int depth) {
    STAFFEL_ASSIGN_OR_RETURN(ExprId part, Atom(depth));
    while (true) {
      if (Take("*")) {
        part = pool_.Repeat(part, 0, kUnbounded);
      } else if (Take("+")) {
        part = pool_.Repeat(part, 1, kUnbounded);
      } else if (Take("?")) {
        part = pool_.Optional(part);
      } else if (Take("{")) {
        STAFFEL_ASSIGN_OR_RETURN(part, Counted(part));
      } else {
        return part;
      }
      if (++quantifiers_ > 100'000) return Error("it has too many quantifiers");
    }
  }

  std::optional<int64_t> Number() {
    SkipSpace();
    if (Peek() < '0' || Peek() > '9') return std::nullopt;
    int64_t value = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      value = std::min(value * 10 + (Peek() - '0'), kCountMax + 1);
      ++position_;
    }
    SkipSpace();
    return value;
  }

  Result<ExprId> Counted(ExprId part) {
    const std::optional<int64_t> low = Number();
    std::optional<int64_t> high = low;
    if (Take(",")) high = Number();
    if ((!low && !high) || !Take("}")) return Error("a repetition must be {m}, {m,} or {m,n}");
    if (low.value_or(0) > kCountMax || high.value_or(0) > kCountMax) {
      return Error("a count is too large");
    }
    if (high && *high < low.value_or(0)) return Error("a repetition's bounds are out of order");
    return pool_.Repeat(part, static_cast<int>(low.value_or(0)),
                        high ? static_cast<int>(*high) : kUnbounded);
  }

  Result<ExprId> Atom(int depth) {
    if (Take("\"")) return Literal();
    if (Take("[")) return Class();
    if (Take(".")) return pool_.Chars(CharSet::All(), Encoding::kRaw);
    if (Take("(")) {
      STAFFEL_ASSIGN_OR_RETURN(const ExprId group, Alternatives(depth + 1));
      if (!Take(")")) return Error("a \"(\" has no \")\"");
      return group;
    }
    if (!BeginsName(Peek())) return Error(StrCat("\"", Peek(), "\" is not expected here"));
    return pool_.Rule(RuleNamed(Name()));
  }

  Result<ExprId> Literal() {
    std::string bytes;
    while (!Take("\"")) {
      if (AtEnd() || Peek() == '\n') return Error("a literal has no end");
      STAFFEL_ASSIGN_OR_RETURN(const uint32_t c, Char());
      AppendUtf8(bytes, c);
    }
    return pool_.Literal(bytes);
  }

  Result<ExprId> Class() {
    const bool negated = Take("^");
    std::vector<CodeRange> ranges;
    while (!Take("]")) {
      if (AtEnd()) return Error("a \"[\" has no \"]\"");
      STAFFEL_ASSIGN_OR_RETURN(const uint32_t first, Char());
      uint32_t last = first;
      if (Peek() == '-' && position_ + 1 < text_.size() && text_[position_ + 1] != ']') {
        ++position_;
        STAFFEL_ASSIGN_OR_RETURN(last, Char());
      }
      if (last < first) return Error("a range of characters is out of order");
      ranges.push_back({first, last});
    }
    const CharSet set(std::move(ranges));
    return pool_.Chars(negated ? set.Complement() : set, Encoding::kRaw);
  }

  // A character of a literal or class, escapes resolved.
  Result<uint32_t> Char() {
    if (AtEnd()) return Error("the end is missing");
    if (!Take("\\")) return ReadUtf8(text_, &position_);
    if (AtEnd()) return Error("it ends with a backslash");
    const char c = text_[position_];
    int digits = 0;
    switch (c) {
      case 'n':
        ++position_;
        return '\n';
      case 'r':
        ++position_;
        return '\r';
      case 't':
        ++position_;
        return '\t';
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      default:
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) {
          return Error(StrCat("the escape \"\\", c, "\" is unknown"));
        }
        return ReadUtf8(text_, &position_);
    }
    ++position_;
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i, ++position_) {
      const char h = Peek();
      const int digit = h >= '0' && h <= '9'   ? h - '0'
                        : h >= 'a' && h <= 'f' ? h - 'a' + 10
                        : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                               : -1;
      if (digit < 0) return Error("an escape needs hexadecimal digits");
      value = 16 * value + static_cast<uint32_t>(digit);
    }
    if (value > kCodePointMax || (value >= 0xD800 && value <= 0xDFFF)) {
      return Error("an escape names no character");
    }
    return value;
  }

  ExprPool& pool_;
  std::string_view text_;
  size_t position_ = 0;
  int quantifiers_ = 0;
  std::map<std::string, RuleId, std::less<>> rules_;
};

}  // namespace

Result<RuleId> ParseGbnf(ExprPool& pool, std::string_view source) {
  return Parser(pool, source).Run();
}

}  // namespace staffel::grammar
