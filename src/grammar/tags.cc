#include "grammar/tags.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/strings.h"
#include "base/utf8.h"
#include "grammar/json_schema.h"

namespace staffel::grammar {
namespace {

// Aho and Corasick's automaton of the triggers, up to the first of them. Texts that end with the
// first occurrence of `wanted`; wanted < 0: texts without any.
CharDfa UntilTrigger(const std::vector<std::u32string>& triggers, int wanted) {
  std::vector<std::map<char32_t, int>> next(1);
  std::vector<int> found = {-1};  // the trigger that ends at a node
  for (size_t t = 0; t < triggers.size(); ++t) {
    int node = 0;
    for (char32_t c : triggers[t]) {
      auto [child, added] = next[node].emplace(c, static_cast<int>(next.size()));
      node = child->second;
      if (added) {
        next.emplace_back();
        found.push_back(-1);
      }
    }
    if (found[node] < 0) found[node] = static_cast<int>(t);
  }
  // Breadth first, so that the longest proper suffix of a node is complete before it is needed.
  std::vector<int> suffix(next.size(), 0);
  std::deque<int> open;
  for (const auto& [c, child] : next[0]) open.push_back(child);
  while (!open.empty()) {
    const int node = open.front();
    open.pop_front();
    if (found[node] < 0) found[node] = found[suffix[node]];
    for (const auto& [c, child] : next[node]) {
      const auto along = next[suffix[node]].find(c);
      suffix[child] = along == next[suffix[node]].end() ? 0 : along->second;
      open.push_back(child);
    }
    for (const auto& [c, target] : next[suffix[node]]) next[node].emplace(c, target);
  }
  std::vector<CharDfa::State> states(next.size());
  for (size_t node = 0; node < next.size(); ++node) {
    states[node].accepts = found[node] == wanted;
    if (found[node] >= 0) continue;  // the first trigger ends the text
    uint32_t from = 0;
    const auto elsewhere = [&](uint32_t first, uint32_t last) {
      for (const CodeRange& range : CharSet::Range(first, last).ranges()) {
        states[node].edges.push_back({range, 0});
      }
    };
    for (const auto& [c, target] : next[node]) {
      if (c > from) elsewhere(from, c - 1);
      states[node].edges.push_back({{c, c}, target});
      from = c + 1;
    }
    elsewhere(from, kCodePointMax);
  }
  return CharDfa(std::move(states));
}

std::u32string CodePoints(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) out += static_cast<char32_t>(ReadUtf8(text, &i));
  return out;
}

// A control token is no text: free text ends in front of it by itself.
bool IsNamedToken(std::string_view literal) { return literal.starts_with('\xFF'); }

// Free text, up to and with the first occurrence of one trigger among several; `wanted` < 0: text
// that has none.
class FreeText {
 public:
  FreeText(ExprPool& pool, const std::vector<std::string>& triggers) : pool_(pool) {
    for (const std::string& trigger : triggers) {
      index_.push_back(IsNamedToken(trigger) ? -1 : static_cast<int>(texts_.size()));
      if (index_.back() >= 0) texts_.push_back(CodePoints(trigger));
    }
  }
  ExprId Until(int wanted, const std::string& trigger) const {
    const int text = index_[wanted];
    return text >= 0 ? Text(text) : pool_.Sequence({Text(-1), pool_.Literal(trigger)});
  }
  ExprId WithoutAny() const { return Text(-1); }

 private:
  ExprId Text(int wanted) const {
    return pool_.Dfa(std::make_shared<const CharDfa>(UntilTrigger(texts_, wanted)), Encoding::kRaw);
  }

  ExprPool& pool_;
  std::vector<std::u32string> texts_;
  std::vector<int> index_;  // in texts_, by trigger; -1: a control token
};

Status CheckTrigger(std::string_view trigger) {
  if (!trigger.empty() && (IsNamedToken(trigger) || IsValidUtf8(trigger))) return absl::OkStatus();
  return absl::InvalidArgumentError("a trigger must be text that is not empty");
}

// `text` behind one of the triggers, each with what may follow it.
class Triggered {
 public:
  explicit Triggered(const GrammarSpec& spec)
      : triggers_(spec.triggers), rests_(triggers_.size()) {}

  // `rest` makes an expression of the literal without its trigger.
  template <class Rest>
  Status Add(std::string_view literal, Rest rest) {
    for (size_t t = 0; t < triggers_.size(); ++t) {
      if (!literal.starts_with(triggers_[t])) continue;
      rests_[t].push_back(rest(literal.substr(triggers_[t].size())));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        StrCat("the tag \"", literal, "\" begins with none of the triggers"));
  }
  // Free text up to a trigger, and what belongs to it.
  ExprId Call(ExprPool& pool, const FreeText& text) const {
    std::vector<ExprId> calls;
    for (size_t t = 0; t < triggers_.size(); ++t) {
      if (rests_[t].empty()) continue;
      calls.push_back(
          pool.Sequence({text.Until(static_cast<int>(t), triggers_[t]), pool.Choice(rests_[t])}));
    }
    return pool.Choice(calls);
  }

 private:
  const std::vector<std::string>& triggers_;
  std::vector<std::vector<ExprId>> rests_;
};

}  // namespace

ExprId TextUntil(ExprPool& pool, std::string_view marker) {
  const std::string trigger(marker);
  return FreeText(pool, {trigger}).Until(0, trigger);
}

Result<RuleId> ParseTags(ExprPool& pool, const GrammarSpec& spec) {
  if (spec.tags.empty()) return absl::InvalidArgumentError("a grammar of tags needs a tag");
  for (const std::string& trigger : spec.triggers) STAFFEL_RETURN_IF_ERROR(CheckTrigger(trigger));
  Triggered triggered(spec);
  std::vector<ExprId> whole;  // tags, their begin included
  for (const StructuralTag& tag : spec.tags) {
    STAFFEL_ASSIGN_OR_RETURN(const RuleId content, ParseJsonSchema(pool, tag.schema, spec.space));
    const ExprId rest = pool.Sequence({pool.Rule(content), pool.Literal(tag.end)});
    whole.push_back(pool.Sequence({pool.Literal(tag.begin), rest}));
    if (spec.tag_required || !spec.list_begin.empty()) continue;
    STAFFEL_RETURN_IF_ERROR(triggered.Add(tag.begin, [&](std::string_view begin) {
      return pool.Sequence({pool.Literal(begin), rest});
    }));
  }
  const RuleId root = pool.NewRule("the tags");
  const ExprId tag = pool.Choice(whole);
  ExprId list = tag;  // behind list_begin
  if (!spec.single_tag) {
    const ExprId more = pool.Sequence({pool.Literal(spec.list_separator), tag});
    list = pool.Sequence({tag, pool.Repeat(more, 0, kUnbounded)});
  }
  list = pool.Sequence({list, pool.Literal(spec.list_end)});
  if (spec.tag_required) {
    pool.Define(root, pool.Sequence({pool.Literal(spec.list_begin), list}));
    return root;
  }
  if (!spec.list_begin.empty()) {
    STAFFEL_RETURN_IF_ERROR(triggered.Add(spec.list_begin, [&](std::string_view begin) {
      return pool.Sequence({pool.Literal(begin), list});
    }));
  }
  const FreeText free_text(pool, spec.triggers);
  const ExprId text = free_text.WithoutAny();
  if (!spec.text_begin.empty()) {
    const ExprId plain = pool.Sequence({pool.Literal(spec.text_begin), text});
    const ExprId tags = pool.Sequence({pool.Literal(spec.list_begin), list});
    pool.Define(root, pool.Choice({plain, tags}));
    return root;
  }
  const ExprId call = triggered.Call(pool, free_text);
  if (spec.single_tag) {
    pool.Define(root, pool.Choice({text, call}));
  } else {
    pool.Define(root, pool.Sequence({pool.Repeat(call, 0, kUnbounded), text}));
  }
  return root;
}

}  // namespace staffel::grammar
