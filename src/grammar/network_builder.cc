#include "grammar/network_builder.h"

#include <algorithm>
#include <string_view>

#include "base/strings.h"

namespace staffel::grammar {
namespace {

// A part is written out in place while all of its copies take fewer states than this.
constexpr int64_t kInlineWeight = 64;
// Counts above this are cut into blocks of the largest power of it (a rule each), so that a count
// takes states in the order of its logarithm.
constexpr int kCountBase = 64;
// Sets of characters with more byte sequences than this become a rule of their own.
constexpr size_t kCharSequencesInline = 24;

const CharSet& JsonUnescaped() {
  static const CharSet set = CharSet::Range(0x20, kCodePointMax).Minus(CharSet::Of("\"\\"));
  return set;
}

int BlockSize(int count) {
  int64_t block = kCountBase;
  while (block * kCountBase <= count) block *= kCountBase;
  return static_cast<int>(block);
}

}  // namespace

bool BeginsJsonChar(uint8_t byte) {
  return byte >= 0x20 && byte != '"' && byte != '\\' && (byte < 0x80 || byte >= 0xC2) &&
         byte <= 0xF4;
}

Status NetworkBuilder::CheckSize() const {
  if (static_cast<int64_t>(flags.size()) <= pool_.limits().automaton_states) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(StrCat("the grammar needs more than ",
                                             pool_.limits().automaton_states,
                                             " automaton states; make it smaller"));
}

RuleId NetworkBuilder::NewRule(std::string name) {
  rules.push_back({AddState(), AddState(Network::kEnd), std::move(name)});
  return static_cast<RuleId>(rules.size()) - 1;
}

void NetworkBuilder::AddCall(StateId from, StateId to, RuleId rule) {
  if (rules[rule].start < 0) {
    rules[rule].start = AddState();
    rules[rule].end = AddState(Network::kEnd);
    open_.push_back(rule);
  }
  edges.push_back({from, to, rule, RawEdge::Kind::kCall});
}

Status NetworkBuilder::Run(RuleId root) {
  STAFFEL_RETURN_IF_ERROR(pool_.status());
  for (RuleId rule = 0; rule < pool_.rule_count(); ++rule) {
    rules.push_back({.name = pool_.rule_name(rule)});
  }
  rules[root].start = AddState();
  rules[root].end = AddState(Network::kEnd);
  open_.push_back(root);
  while (!open_.empty()) {
    const RuleId rule = open_.back();
    open_.pop_back();
    if (pool_.rule_body(rule) < 0) {
      return absl::InvalidArgumentError(
          StrCat("the grammar uses the rule \"", rules[rule].name, "\", which it does not define"));
    }
    STAFFEL_RETURN_IF_ERROR(Lower(pool_.rule_body(rule), rules[rule].start, rules[rule].end));
  }
  return absl::OkStatus();
}

Status NetworkBuilder::Lower(ExprId id, StateId from, StateId to) {
  STAFFEL_RETURN_IF_ERROR(CheckSize());
  const Expr& expr = pool_.expr(id);
  switch (expr.kind) {
    case Expr::Kind::kEmpty:
      AddEmpty(from, to);
      return absl::OkStatus();
    case Expr::Kind::kNever:
      return absl::OkStatus();
    case Expr::Kind::kLiteral:
      LowerLiterals({&id, 1}, from, to);
      return absl::OkStatus();
    case Expr::Kind::kChars:
      LowerChars(*expr.chars, expr.encoding, from, to);
      return absl::OkStatus();
    case Expr::Kind::kSequence:
      for (size_t i = 0; i < expr.children.size(); ++i) {
        const StateId next = i + 1 < expr.children.size() ? AddState() : to;
        STAFFEL_RETURN_IF_ERROR(Lower(expr.children[i], from, next));
        from = next;
      }
      return absl::OkStatus();
    case Expr::Kind::kChoice:
      return LowerChoice(expr, from, to);
    case Expr::Kind::kRepeat:
      return LowerRepeat(expr, from, to);
    case Expr::Kind::kRule:
      AddCall(from, to, expr.rule);
      return absl::OkStatus();
    case Expr::Kind::kDfa:
      return LowerDfa(expr, from, to);
  }
  return absl::OkStatus();
}

Status NetworkBuilder::LowerChoice(const Expr& expr, StateId from, StateId to) {
  std::vector<ExprId> literals;
  for (ExprId child : expr.children) {
    if (pool_.expr(child).kind == Expr::Kind::kLiteral) {
      literals.push_back(child);
    } else {
      STAFFEL_RETURN_IF_ERROR(Lower(child, from, to));
    }
  }
  LowerLiterals(literals, from, to);
  return absl::OkStatus();
}

// A trie, so that a choice among 100,000 words is deterministic.
void NetworkBuilder::LowerLiterals(absl::Span<const ExprId> literals, StateId from, StateId to) {
  std::vector<std::string_view> words;
  words.reserve(literals.size());
  for (ExprId id : literals) words.push_back(pool_.expr(id).text);
  std::sort(words.begin(), words.end());
  std::vector<StateId> path = {from};  // path[d]: the state after d bytes of the last word
  std::string_view last;
  for (std::string_view word : words) {
    size_t common = 0;
    while (common < last.size() && common < word.size() && last[common] == word[common]) ++common;
    // The last word's final byte went to `to` itself; where a longer word goes on from there, it
    // takes an edge of its own.
    if (common == last.size() && common > 0) --common;
    path.resize(common + 1);
    for (size_t i = common; i < word.size(); ++i) {
      const StateId next = i + 1 < word.size() ? AddState() : to;
      const uint8_t byte = static_cast<uint8_t>(word[i]);
      AddBytes(path[i], next, byte, byte);
      path.push_back(next);
    }
    last = word;
  }
}

Status NetworkBuilder::LowerDfa(const Expr& expr, StateId from, StateId to) {
  const std::vector<CharDfa::State>& states = expr.dfa->states();
  std::vector<StateId> lowered;
  for (size_t i = 0; i < states.size(); ++i) lowered.push_back(AddState());
  AddEmpty(from, lowered[0]);
  for (size_t s = 0; s < states.size(); ++s) {
    if (states[s].accepts) AddEmpty(lowered[s], to);
    std::map<int, std::vector<CodeRange>> by_target;
    for (const CharDfa::Edge& edge : states[s].edges) by_target[edge.target].push_back(edge.range);
    for (auto& [target, ranges] : by_target) {
      LowerChars(CharSet(std::move(ranges)), expr.encoding, lowered[s], lowered[target]);
      STAFFEL_RETURN_IF_ERROR(CheckSize());
    }
  }
  return absl::OkStatus();
}

void NetworkBuilder::LowerChars(const CharSet& set, Encoding encoding, StateId from, StateId to) {
  const auto lower = [&](StateId source, StateId target) {
    if (encoding == Encoding::kRaw) {
      LowerRawChars(set, source, target);
      return;
    }
    const CharSet unescaped = set.Intersect(JsonUnescaped());
    if (unescaped == JsonUnescaped()) {
      const StateId any = AddState(Network::kAnyJsonChar);
      AddEmpty(source, any);
      source = any;
    }
    LowerRawChars(unescaped, source, target);
    LowerEscapes(set, source, target);
  };
  if (set.ranges().size() <= kCharSequencesInline) {
    lower(from, to);
    return;
  }
  auto [found, added] = char_rules_.emplace(std::pair(set, encoding), -1);
  if (added) {
    found->second = NewRule("a class of characters");
    const Rule rule = rules[found->second];
    lower(rule.start, rule.end);
  }
  AddCall(from, to, found->second);
}

void NetworkBuilder::LowerRawChars(const CharSet& set, StateId from, StateId to) {
  LowerSequences(Utf8Ranges(set), from, to);
}

// Sequences with a common first range share the state behind it, and equal rests share theirs.
void NetworkBuilder::LowerSequences(const std::vector<std::vector<ByteSpan>>& sequences,
                                    StateId from, StateId to) {
  using Rest = std::vector<std::vector<ByteSpan>>;
  std::map<Rest, StateId> states;
  std::vector<std::pair<Rest, StateId>> open = {{sequences, from}};
  while (!open.empty()) {
    const auto [rest, state] = std::move(open.back());
    open.pop_back();
    for (size_t i = 0; i < rest.size();) {
      const ByteSpan first = rest[i][0];
      Rest next;
      bool ends = false;
      for (; i < rest.size() && rest[i][0] == first; ++i) {
        if (rest[i].size() == 1) {
          ends = true;
        } else {
          next.emplace_back(rest[i].begin() + 1, rest[i].end());
        }
      }
      if (ends) AddBytes(state, to, first.low, first.high);
      if (next.empty()) continue;
      auto [found, added] = states.emplace(next, -1);
      if (added) {
        found->second = AddState();
        open.emplace_back(std::move(next), found->second);
      }
      AddBytes(state, found->second, first.low, first.high);
    }
  }
}

// RFC 8259 section 7. A set of all characters takes every \uXXXX; others take one only where there
// is no shorter way to write the character, since a hexadecimal form of each would cost states.
void NetworkBuilder::LowerEscapes(const CharSet& set, StateId from, StateId to) {
  static constexpr std::string_view kChars = "\"\\/\b\f\n\r\t", kLetters = "\"\\/bfnrt";
  const bool every = set == CharSet::All();
  StateId after_backslash = -1, after_u = -1, after_zeros = -1;
  const auto backslash = [&] {
    if (after_backslash < 0) {
      after_backslash = AddState();
      AddBytes(from, after_backslash, '\\', '\\');
    }
    return after_backslash;
  };
  const auto begin_hex = [&] {
    if (after_u < 0) {
      after_u = AddState();
      AddBytes(backslash(), after_u, 'u', 'u');
    }
    return after_u;
  };
  for (size_t i = 0; i < kChars.size(); ++i) {
    if (!set.Contains(static_cast<uint8_t>(kChars[i]))) continue;
    const uint8_t letter = static_cast<uint8_t>(kLetters[i]);
    AddBytes(backslash(), to, letter, letter);
  }
  if (every) {
    LowerEveryHexEscape(begin_hex(), to);
    return;
  }
  for (int high = 0; high < 2; ++high) {
    StateId after_high = -1;
    for (int low = 0; low < 16; ++low) {
      if (!set.Contains(16 * high + low)) continue;
      if (after_zeros < 0) {
        const StateId zero = AddState();
        after_zeros = AddState();
        AddBytes(begin_hex(), zero, '0', '0');
        AddBytes(zero, after_zeros, '0', '0');
      }
      if (after_high < 0) {
        after_high = AddState();
        AddBytes(after_zeros, after_high, static_cast<uint8_t>('0' + high),
                 static_cast<uint8_t>('0' + high));
      }
      const char digit = "0123456789abcdef"[low], upper = "0123456789ABCDEF"[low];
      AddBytes(after_high, to, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit));
      if (upper != digit) {
        AddBytes(after_high, to, static_cast<uint8_t>(upper), static_cast<uint8_t>(upper));
      }
    }
  }
}

// Four digits of a code unit that is no surrogate, or a high one and \u and a low one.
void NetworkBuilder::LowerEveryHexEscape(StateId after_u, StateId to) {
  const auto add = [&](StateId source, StateId target, std::string_view digits) {
    for (char digit : digits) {
      AddBytes(source, target, static_cast<uint8_t>(digit), static_cast<uint8_t>(digit));
    }
  };
  const auto add_hex = [&](StateId source, StateId target) {
    AddBytes(source, target, '0', '9');
    AddBytes(source, target, 'a', 'f');
    AddBytes(source, target, 'A', 'F');
  };
  const StateId three = AddState(), two = AddState(), one = AddState();
  add_hex(three, two);
  add_hex(two, one);
  add_hex(one, to);
  AddBytes(after_u, three, '0', '9');
  add(after_u, three, "abcefABCEF");
  const StateId d = AddState();
  add(after_u, d, "dD");
  AddBytes(d, two, '0', '7');
  const StateId high2 = AddState(), high1 = AddState(), low_backslash = AddState(),
                low_u = AddState(), low_d = AddState(), low3 = AddState();
  add(d, high2, "89abAB");
  add_hex(high2, high1);
  add_hex(high1, low_backslash);
  const StateId low_c = AddState();
  AddBytes(low_backslash, low_u, '\\', '\\');
  AddBytes(low_u, low_d, 'u', 'u');
  add(low_d, low3, "dD");
  add(low3, low_c, "cdefCDEF");
  add_hex(low_c, one);
}

Status NetworkBuilder::LowerRepeat(const Expr& expr, StateId from, StateId to) {
  const ExprId part = expr.children[0];
  const bool unbounded = expr.max == kUnbounded;
  const int64_t copies = int64_t{expr.min} + (unbounded ? 1 : expr.max - expr.min);
  if (pool_.expr(part).weight * copies <= kInlineWeight) {
    StateId state = AddState();
    AddEmpty(from, state);
    for (int i = 0; i < expr.min; ++i) {
      const StateId next = AddState();
      STAFFEL_RETURN_IF_ERROR(Lower(part, state, next));
      state = next;
    }
    if (unbounded) {
      const StateId loop = AddState();
      AddEmpty(state, loop);
      STAFFEL_RETURN_IF_ERROR(Lower(part, loop, loop));
      state = loop;
    }
    for (int i = expr.min; i < expr.max; ++i) {
      AddEmpty(state, to);
      const StateId next = AddState();
      STAFFEL_RETURN_IF_ERROR(Lower(part, state, next));
      state = next;
    }
    AddEmpty(state, to);
    return absl::OkStatus();
  }
  auto [found, added] = part_rules_.emplace(part, -1);
  if (added) {
    if (pool_.expr(part).kind == Expr::Kind::kRule) {
      found->second = pool_.expr(part).rule;
    } else {
      const RuleId fresh = NewRule("a repeated part");
      found->second = fresh;
      STAFFEL_RETURN_IF_ERROR(Lower(part, rules[fresh].start, rules[fresh].end));
    }
  }
  const RuleId rule = part_rules_[part];
  StateId state = from;
  if (expr.min > 0) {
    state = AddState();
    LowerExactly(rule, expr.min, from, state);
  }
  if (!unbounded) {
    LowerUpTo(rule, expr.max - expr.min, state, to);
    return CheckSize();
  }
  const StateId loop = AddState();
  AddEmpty(state, loop);
  AddCall(loop, loop, rule);
  AddEmpty(loop, to);
  return CheckSize();
}

void NetworkBuilder::LowerExactly(RuleId part, int count, StateId from, StateId to) {
  if (count == 0) {
    AddEmpty(from, to);
    return;
  }
  int block = 1;
  RuleId block_rule = part;
  if (count > kCountBase) {
    block = BlockSize(count - 1);
    block_rule = Exactly(part, block);
  }
  const int blocks = count / block, rest = count % block;
  for (int i = 0; i < blocks; ++i) {
    const StateId next = i + 1 < blocks || rest > 0 ? AddState() : to;
    AddCall(from, next, block_rule);
    from = next;
  }
  if (rest > 0) LowerExactly(part, rest, from, to);
}

// Up to q * block + r times: i < q blocks and fewer than a block more, or q blocks and up to r
// more. So each length has one reading.
void NetworkBuilder::LowerUpTo(RuleId part, int count, StateId from, StateId to) {
  if (count <= kCountBase) {
    StateId state = from;
    for (int i = 0; i < count; ++i) {
      AddEmpty(state, to);
      const StateId next = i + 1 < count ? AddState() : to;
      AddCall(state, next, part);
      state = next;
    }
    if (count == 0) AddEmpty(from, to);
    return;
  }
  const int block = BlockSize(count - 1);
  const int blocks = count / block, rest = count % block;
  const RuleId full = Exactly(part, block), fewer = UpTo(part, block - 1);
  StateId state = from;
  for (int i = 0; i < blocks; ++i) {
    AddCall(state, to, fewer);
    const StateId next = AddState();
    AddCall(state, next, full);
    state = next;
  }
  LowerUpTo(part, rest, state, to);
}

RuleId NetworkBuilder::Exactly(RuleId part, int count) {
  if (auto found = exactly_.find({part, count}); found != exactly_.end()) return found->second;
  const RuleId rule = NewRule("a repetition");
  exactly_[{part, count}] = rule;
  LowerExactly(part, count, rules[rule].start, rules[rule].end);
  return rule;
}

RuleId NetworkBuilder::UpTo(RuleId part, int count) {
  if (auto found = up_to_.find({part, count}); found != up_to_.end()) return found->second;
  const RuleId rule = NewRule("a repetition");
  up_to_[{part, count}] = rule;
  LowerUpTo(part, count, rules[rule].start, rules[rule].end);
  return rule;
}

}  // namespace staffel::grammar
