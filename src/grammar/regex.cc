#include "grammar/regex.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"

namespace staffel::grammar {
namespace {

constexpr int kCountMax = 1 << 30;

// The tree of a pattern. Depth is bounded by Limits::nesting.
struct Node {
  enum class Kind : uint8_t { kEmpty, kChars, kSequence, kChoice, kRepeat, kBegin, kEnd };
  Kind kind = Kind::kEmpty;
  CharSet chars;
  std::vector<Node> children;
  int min = 0, max = 0;
  bool anchored = false;  // an anchor is within
};

const CharSet& Digits() {
  static const CharSet set = CharSet::Range('0', '9');
  return set;
}
const CharSet& WordChars() {
  static const CharSet set = CharSet({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
  return set;
}
const CharSet& Spaces() {  // ECMA-262 WhiteSpace and LineTerminator
  static const CharSet set = CharSet({{9, 13},
                                      {0x20, 0x20},
                                      {0xA0, 0xA0},
                                      {0x1680, 0x1680},
                                      {0x2000, 0x200A},
                                      {0x2028, 0x2029},
                                      {0x202F, 0x202F},
                                      {0x205F, 0x205F},
                                      {0x3000, 0x3000},
                                      {0xFEFF, 0xFEFF}});
  return set;
}
const CharSet& Dot() {
  static const CharSet set = CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
  return set;
}

class Parser {
 public:
  Parser(std::string_view pattern, const Limits& limits) : text_(pattern), limits_(limits) {}

  Result<Node> Parse() {
    if (!IsValidUtf8(text_)) return Error("it is not valid UTF-8");
    STAFFEL_ASSIGN_OR_RETURN(Node node, Alternatives(0));
    if (!AtEnd()) return Error("a \")\" has no \"(\"");
    return node;
  }

 private:
  bool AtEnd() const { return position_ == text_.size(); }
  char Peek() const { return AtEnd() ? '\0' : text_[position_]; }
  bool Take(std::string_view what) {
    if (!text_.substr(position_).starts_with(what)) return false;
    position_ += what.size();
    return true;
  }
  Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(
        StrCat("the regular expression cannot be used: ", what, " (at byte ", position_, ")"));
  }

  Result<Node> Alternatives(int depth) {
    if (depth > limits_.nesting) {
      return absl::InvalidArgumentError(StrCat("a regular expression nests more than ",
                                               limits_.nesting, " groups; make it flatter"));
    }
    std::vector<Node> alternatives;
    do {
      STAFFEL_ASSIGN_OR_RETURN(Node sequence, Sequence(depth));
      alternatives.push_back(std::move(sequence));
    } while (Take("|"));
    if (alternatives.size() == 1) return std::move(alternatives[0]);
    return Combine(Node::Kind::kChoice, std::move(alternatives));
  }

  static Node Combine(Node::Kind kind, std::vector<Node> children) {
    Node node{.kind = kind};
    for (const Node& child : children) node.anchored |= child.anchored;
    node.children = std::move(children);
    return node;
  }

  Result<Node> Sequence(int depth) {
    std::vector<Node> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')') {
      STAFFEL_ASSIGN_OR_RETURN(Node part, Quantified(depth));
      parts.push_back(std::move(part));
    }
    if (parts.size() == 1) return std::move(parts[0]);
    return Combine(Node::Kind::kSequence, std::move(parts));
  }

  Result<Node> Quantified(int depth) {
    STAFFEL_ASSIGN_OR_RETURN(Node atom, Atom(depth));
    while (true) {
      int min = 0, max = kUnbounded;
      if (Take("*")) {
      } else if (Take("+")) {
        min = 1;
      } else if (Take("?")) {
        max = 1;
      } else if (Peek() == '{') {
        STAFFEL_ASSIGN_OR_RETURN(const bool counted, Count(&min, &max));
        if (!counted) return atom;
      } else {
        return atom;
      }
      if (Take("+")) return Error("possessive quantifiers are not supported");
      Take("?");  // lazy: the same texts
      if (atom.anchored) return Error("an anchor cannot be repeated");
      if (++quantifiers_ > limits_.nesting * 100) return Error("it has too many quantifiers");
      Node repeat{.kind = Node::Kind::kRepeat, .min = min, .max = max};
      repeat.children.push_back(std::move(atom));
      atom = std::move(repeat);
      if (Peek() == '*' || Peek() == '+' || Peek() == '?' || Peek() == '{') {
        return Error("a quantifier follows a quantifier");
      }
    }
  }

  // {m}, {m,}, {m,n}. False: the brace is a character.
  Result<bool> Count(int* min, int* max) {
    const size_t begin = position_;
    ++position_;
    const auto number = [&]() -> std::optional<int64_t> {
      const size_t first = position_;
      int64_t value = 0;
      while (Peek() >= '0' && Peek() <= '9') {
        value = std::min<int64_t>(value * 10 + (text_[position_++] - '0'), int64_t{1} << 40);
      }
      return position_ == first ? std::nullopt : std::optional(value);
    };
    const std::optional<int64_t> low = number();
    std::optional<int64_t> high = low;
    if (low && Take(",")) high = number();
    if (!low || !Take("}")) {
      position_ = begin;
      return false;
    }
    if (high && *high < *low) return Error("the bounds of a quantifier are out of order");
    if (*low > kCountMax || (high && *high > kCountMax)) return Error("a count is too large");
    *min = static_cast<int>(*low);
    *max = high ? static_cast<int>(*high) : kUnbounded;
    return true;
  }

  static Node CharsNode(CharSet set) {
    return Node{.kind = Node::Kind::kChars, .chars = std::move(set)};
  }
  static Node Anchor(Node::Kind kind) { return Node{.kind = kind, .anchored = true}; }

  Result<Node> Atom(int depth) {
    if (Take("(")) return Group(depth);
    if (Take("[")) return Class();
    if (Take(".")) return CharsNode(Dot());
    if (Take("^")) return Anchor(Node::Kind::kBegin);
    if (Take("$")) return Anchor(Node::Kind::kEnd);
    if (Take("\\")) return AtomEscape();
    const char c = Peek();
    if (c == '*' || c == '+' || c == '?') return Error("a quantifier has nothing to repeat");
    if (c == '{') {
      int min, max;
      const size_t begin = position_;
      STAFFEL_ASSIGN_OR_RETURN(const bool counted, Count(&min, &max));
      if (counted) return Error("a quantifier has nothing to repeat");
      position_ = begin;
    }
    const uint32_t code = ReadUtf8(text_, &position_);
    return CharsNode(CharSet::Range(code, code));
  }

  Result<Node> Group(int depth) {
    if (Take("?")) {
      if (Take("=") || Take("!") || Take("<=") || Take("<!")) {
        return Error("look-around is not supported");
      }
      if (Take("<") || Take("P<")) {
        const size_t end = text_.find('>', position_);
        if (end == std::string_view::npos || end == position_) {
          return Error("the name of a group has no end");
        }
        position_ = end + 1;
      } else if (!Take(":")) {
        return Error("this kind of group is not supported");
      }
    }
    STAFFEL_ASSIGN_OR_RETURN(Node node, Alternatives(depth + 1));
    if (!Take(")")) return Error("a \"(\" has no \")\"");
    return node;
  }

  Result<Node> AtomEscape() {
    const char c = Peek();
    if (c == 'b' || c == 'B') return Error("\\b and \\B are not supported");
    if (c == 'A') {
      ++position_;
      return Anchor(Node::Kind::kBegin);
    }
    if (c == 'Z' || c == 'z') {
      ++position_;
      return Anchor(Node::Kind::kEnd);
    }
    if ((c >= '1' && c <= '9') || c == 'k') return Error("back-references are not supported");
    STAFFEL_ASSIGN_OR_RETURN(CharSet set, Escape());
    return CharsNode(std::move(set));
  }

  Result<uint32_t> Hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char c = Peek();
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) return Error("an escape needs hexadecimal digits");
      value = 16 * value + static_cast<uint32_t>(digit);
      ++position_;
    }
    return value;
  }

  Result<uint32_t> UnicodeEscape() {
    if (Take("{")) {
      uint32_t value = 0;
      while (!Take("}")) {
        STAFFEL_ASSIGN_OR_RETURN(const uint32_t digit, Hex(1));
        value = 16 * value + digit;
        if (value > kCodePointMax) return Error("a \\u{} escape is beyond U+10FFFF");
      }
      return value;
    }
    STAFFEL_ASSIGN_OR_RETURN(uint32_t value, Hex(4));
    if (value >= 0xD800 && value < 0xDC00 && Take("\\u")) {
      STAFFEL_ASSIGN_OR_RETURN(const uint32_t low, Hex(4));
      if (low < 0xDC00 || low > 0xDFFF) return Error("a surrogate has no partner");
      value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
    }
    if (value >= 0xD800 && value <= 0xDFFF) return Error("a surrogate has no partner");
    return value;
  }

  // Behind a backslash: a character, or a set of them.
  Result<CharSet> Escape() {
    if (AtEnd()) return Error("it ends with a backslash");
    const auto one = [](uint32_t c) { return CharSet::Range(c, c); };
    const uint32_t c = ReadUtf8(text_, &position_);
    switch (c) {
      case 'd':
        return Digits();
      case 'D':
        return Digits().Complement();
      case 'w':
        return WordChars();
      case 'W':
        return WordChars().Complement();
      case 's':
        return Spaces();
      case 'S':
        return Spaces().Complement();
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case '0':
        if (Peek() >= '0' && Peek() <= '9') return Error("octal escapes are not supported");
        return one(0);
      case 'x': {
        STAFFEL_ASSIGN_OR_RETURN(const uint32_t value, Hex(2));
        return one(value);
      }
      case 'u': {
        STAFFEL_ASSIGN_OR_RETURN(const uint32_t value, UnicodeEscape());
        return one(value);
      }
      case 'c': {
        const char letter = Peek();
        if (!((letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z'))) {
          return Error("\\c needs a letter");
        }
        ++position_;
        return one(static_cast<uint32_t>(letter) % 32);
      }
      case 'p':
      case 'P':
        return Property(c == 'P');
      default:
        break;
    }
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '1' && c <= '9')) {
      return Error("this escape is not supported");
    }
    return one(c);
  }

  Result<CharSet> Property(bool negated) {
    std::string_view name;
    if (Take("{")) {
      const size_t end = text_.find('}', position_);
      if (end == std::string_view::npos) return Error("\\p{ has no }");
      name = text_.substr(position_, end - position_);
      position_ = end + 1;
    } else if (!AtEnd()) {
      name = text_.substr(position_++, 1);
    }
    const CharSet set = UnicodeCategory(name);
    if (set.empty()) {
      return Error(StrCat("\\p{", name, "} is not supported; general categories are"));
    }
    return negated ? set.Complement() : set;
  }

  Result<Node> Class() {
    const bool negated = Take("^");
    CharSet set;
    std::vector<CodeRange> ranges;
    while (!Take("]")) {
      if (AtEnd()) return Error("a \"[\" has no \"]\"");
      if (Take("[:")) return Error("POSIX classes are not supported");
      STAFFEL_ASSIGN_OR_RETURN(const CharSet first, ClassAtom());
      const bool range =
          Peek() == '-' && position_ + 1 < text_.size() && text_[position_ + 1] != ']';
      if (!range) {
        ranges.insert(ranges.end(), first.ranges().begin(), first.ranges().end());
        continue;
      }
      ++position_;
      STAFFEL_ASSIGN_OR_RETURN(const CharSet last, ClassAtom());
      const auto single = [](const CharSet& s) {
        return s.ranges().size() == 1 && s.ranges()[0].first == s.ranges()[0].last;
      };
      if (!single(first) || !single(last)) return Error("a range needs a character at each end");
      const CodeRange whole = {first.ranges()[0].first, last.ranges()[0].first};
      if (whole.first > whole.last) return Error("a range of characters is out of order");
      ranges.push_back(whole);
    }
    set = CharSet(std::move(ranges));
    return CharsNode(negated ? set.Complement() : std::move(set));
  }

  Result<CharSet> ClassAtom() {
    if (AtEnd()) return Error("a \"[\" has no \"]\"");
    if (Take("\\b")) return CharSet::Range('\b', '\b');
    if (Take("\\")) return Escape();
    const uint32_t c = ReadUtf8(text_, &position_);
    return CharSet::Range(c, c);
  }

  std::string_view text_;
  const Limits& limits_;
  size_t position_ = 0;
  int quantifiers_ = 0;
};

// From the tree to an expression. `left`: the node stands where the whole pattern may begin, so
// that it writes what may come before (nothing once ^ was seen); `right` likewise.
class Lowering {
 public:
  Lowering(ExprPool& pool, RegexMatch match, Encoding encoding) : pool_(pool), encoding_(encoding) {
    around_ = match == RegexMatch::kFull
                  ? pool.Empty()
                  : pool.Repeat(pool.Chars(CharSet::All(), encoding), 0, kUnbounded);
  }

  Result<ExprId> Lower(const Node& node, bool left, bool right) {
    switch (node.kind) {
      case Node::Kind::kBegin:
        if (!left) return Misplaced();
        return right ? around_ : pool_.Empty();
      case Node::Kind::kEnd:
        if (!right) return Misplaced();
        return left ? around_ : pool_.Empty();
      case Node::Kind::kSequence:
        return LowerSequence(node, left, right);
      case Node::Kind::kChoice: {
        std::vector<ExprId> alternatives;
        for (const Node& child : node.children) {
          STAFFEL_ASSIGN_OR_RETURN(ExprId lowered, Lower(child, left, right));
          alternatives.push_back(lowered);
        }
        return pool_.Choice(alternatives);
      }
      default: {
        STAFFEL_ASSIGN_OR_RETURN(ExprId inner, LowerInner(node));
        return pool_.Sequence(
            {left ? around_ : pool_.Empty(), inner, right ? around_ : pool_.Empty()});
      }
    }
  }

 private:
  Status Misplaced() const {
    return absl::InvalidArgumentError(
        "the regular expression cannot be used: ^ and $ are supported only where the text can "
        "begin and end");
  }

  Result<ExprId> LowerInner(const Node& node) {
    if (node.kind == Node::Kind::kChars) return pool_.Chars(node.chars, encoding_);
    if (node.kind == Node::Kind::kEmpty) return pool_.Empty();
    STAFFEL_ASSIGN_OR_RETURN(ExprId part, Lower(node.children[0], false, false));
    return pool_.Repeat(part, node.min, node.max);
  }

  Result<ExprId> LowerSequence(const Node& node, bool left, bool right) {
    size_t begin = 0, end = node.children.size();
    bool left_open = left, right_open = right;
    for (; begin < end && node.children[begin].kind == Node::Kind::kBegin; ++begin) {
      if (!left) return Misplaced();
      left_open = false;
    }
    for (; begin < end && node.children[end - 1].kind == Node::Kind::kEnd; --end) {
      if (!right) return Misplaced();
      right_open = false;
    }
    std::vector<ExprId> parts;
    if (begin == end) {
      if (left_open || right_open) parts.push_back(around_);
      return pool_.Sequence(parts);
    }
    for (size_t i = begin; i < end; ++i) {
      STAFFEL_ASSIGN_OR_RETURN(ExprId part, Lower(node.children[i], left_open && i == begin,
                                                  right_open && i + 1 == end));
      parts.push_back(part);
    }
    return pool_.Sequence(parts);
  }

  ExprPool& pool_;
  Encoding encoding_;
  ExprId around_;
};

}  // namespace

Result<ExprId> ParseRegex(ExprPool& pool, std::string_view pattern, RegexMatch match,
                          Encoding encoding) {
  STAFFEL_ASSIGN_OR_RETURN(const Node node, Parser(pattern, pool.limits()).Parse());
  return Lowering(pool, match, encoding).Lower(node, true, true);
}

}  // namespace staffel::grammar
