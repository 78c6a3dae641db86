#include "grammar/trigger_text.h"

#include <deque>
#include <map>
#include <utility>

#include "base/utf8.h"

namespace staffel::grammar {
namespace {

std::u32string CodePoints(std::string_view text) {
  std::u32string out;
  for (size_t i = 0; i < text.size();) out += static_cast<char32_t>(ReadUtf8(text, &i));
  return out;
}

}  // namespace

// Aho and Corasick's automaton of the triggers, up to the first of them.
CharDfa UntilTrigger(const std::vector<std::string>& triggers, int wanted) {
  std::vector<std::map<char32_t, int>> next(1);
  std::vector<int> found = {-1};  // the trigger that ends at a node
  for (size_t t = 0; t < triggers.size(); ++t) {
    int node = 0;
    for (char32_t c : CodePoints(triggers[t])) {
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

}  // namespace staffel::grammar
