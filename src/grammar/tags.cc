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

}  // namespace

Result<RuleId> ParseTags(ExprPool& pool, const GrammarSpec& spec) {
  if (spec.tags.empty()) return absl::InvalidArgumentError("a grammar of tags needs a tag");
  std::vector<std::u32string> triggers;
  for (const std::string& trigger : spec.triggers) {
    if (trigger.empty() || !IsValidUtf8(trigger)) {
      return absl::InvalidArgumentError("a trigger must be text that is not empty");
    }
    triggers.push_back(CodePoints(trigger));
  }
  std::vector<std::vector<ExprId>> by_trigger(triggers.size());
  std::vector<ExprId> whole;  // tags, their trigger included
  for (const StructuralTag& tag : spec.tags) {
    STAFFEL_ASSIGN_OR_RETURN(const RuleId content, ParseJsonSchema(pool, tag.schema, spec.space));
    const ExprId rest = pool.Sequence({pool.Rule(content), pool.Literal(tag.end)});
    whole.push_back(pool.Sequence({pool.Literal(tag.begin), rest}));
    if (spec.tag_required) continue;
    const auto trigger =
        std::find_if(spec.triggers.begin(), spec.triggers.end(),
                     [&](const std::string& t) { return tag.begin.starts_with(t); });
    if (trigger == spec.triggers.end()) {
      return absl::InvalidArgumentError(
          StrCat("the tag \"", tag.begin, "\" begins with none of the triggers"));
    }
    by_trigger[trigger - spec.triggers.begin()].push_back(
        pool.Sequence({pool.Literal(std::string_view(tag.begin).substr(trigger->size())), rest}));
  }
  const RuleId root = pool.NewRule("the tags");
  if (spec.tag_required) {
    const ExprId tag = pool.Choice(whole);
    pool.Define(root, pool.Repeat(tag, 1, spec.single_tag ? 1 : kUnbounded));
    return root;
  }
  const auto text_until = [&](int wanted) {
    return pool.Dfa(std::make_shared<const CharDfa>(UntilTrigger(triggers, wanted)),
                    Encoding::kRaw);
  };
  std::vector<ExprId> called;
  for (size_t t = 0; t < triggers.size(); ++t) {
    called.push_back(pool.Sequence({text_until(static_cast<int>(t)), pool.Choice(by_trigger[t])}));
  }
  const ExprId call = pool.Choice(called);
  const ExprId text = text_until(-1);
  pool.Define(root, spec.single_tag ? pool.Choice({text, call})
                                    : pool.Sequence({pool.Repeat(call, 0, kUnbounded), text}));
  return root;
}

}  // namespace staffel::grammar
