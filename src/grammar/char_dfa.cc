#include "grammar/char_dfa.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/strings.h"
#include "base/utf8.h"

namespace staffel::grammar {
namespace {

// An edge is extended rather than doubled where neighbouring characters go to one state.
void AppendEdge(std::vector<CharDfa::Edge>& edges, CodeRange range, int target) {
  if (!edges.empty() && edges.back().target == target &&
      edges.back().range.last + 1 == range.first) {
    edges.back().range.last = range.last;
  } else {
    edges.push_back({range, target});
  }
}

Status TooManyStates(int64_t limit) {
  return absl::ResourceExhaustedError(
      StrCat("a pattern, or a combination of patterns, lengths and formats, needs an automaton of "
             "more than ",
             limit, " states; make it simpler"));
}

std::vector<bool> CoAccessible(const std::vector<CharDfa::State>& states) {
  std::vector<std::vector<int>> sources(states.size());
  std::vector<int> open;
  std::vector<bool> alive(states.size());
  for (size_t s = 0; s < states.size(); ++s) {
    for (const CharDfa::Edge& edge : states[s].edges) {
      sources[edge.target].push_back(static_cast<int>(s));
    }
    if (!states[s].accepts) continue;
    alive[s] = true;
    open.push_back(static_cast<int>(s));
  }
  while (!open.empty()) {
    const int state = open.back();
    open.pop_back();
    for (int source : sources[state]) {
      if (alive[source]) continue;
      alive[source] = true;
      open.push_back(source);
    }
  }
  return alive;
}

std::vector<CodeRange> WithoutSurrogates(CodeRange range) {
  return CharSet::Range(range.first, range.last).ranges();
}

}  // namespace

CharDfa CharDfa::AllTexts() {
  State state{.accepts = true};
  for (const CodeRange& range : CharSet::All().ranges()) state.edges.push_back({range, 0});
  return CharDfa({state});
}

CharDfa CharDfa::AllBut(const std::vector<std::string_view>& words) {
  std::vector<std::map<uint32_t, int>> children(1);
  std::vector<bool> is_word(1);
  for (std::string_view word : words) {
    int node = 0;
    for (size_t i = 0; i < word.size();) {
      const uint32_t c = ReadUtf8(word, &i);
      auto [found, added] = children[node].emplace(c, static_cast<int>(children.size()));
      node = found->second;
      if (added) {
        children.emplace_back();
        is_word.push_back(false);
      }
    }
    is_word[node] = true;
  }
  const int elsewhere = static_cast<int>(children.size());
  std::vector<State> states(elsewhere + 1);
  for (int node = 0; node < elsewhere; ++node) {
    states[node].accepts = !is_word[node];
    uint32_t next = 0;
    const auto others = [&](uint32_t first, uint32_t last) {
      for (const CodeRange& range : WithoutSurrogates({first, last})) {
        states[node].edges.push_back({range, elsewhere});
      }
    };
    for (const auto& [c, child] : children[node]) {
      if (c > next) others(next, c - 1);
      states[node].edges.push_back({{c, c}, child});
      next = c + 1;
    }
    if (next <= kCodePointMax) others(next, kCodePointMax);
  }
  states[elsewhere].accepts = true;
  for (const CodeRange& range : CharSet::All().ranges()) {
    states[elsewhere].edges.push_back({range, elsewhere});
  }
  return CharDfa(std::move(states));
}

CharDfa CharDfa::Length(int min, int max) {
  const int count = (max < 0 ? min : max) + 1;
  std::vector<State> states(count);
  for (int i = 0; i < count; ++i) {
    states[i].accepts = i >= min;
    const int target = i + 1 < count ? i + 1 : max < 0 ? i : -1;
    if (target < 0) continue;
    for (const CodeRange& range : CharSet::All().ranges()) {
      states[i].edges.push_back({range, target});
    }
  }
  return CharDfa(std::move(states));
}

bool CharDfa::IsEmpty() const { return states_.empty() || !CoAccessible(states_)[0]; }

bool CharDfa::Accepts(std::string_view utf8) const {
  if (states_.empty() || !IsValidUtf8(utf8)) return false;
  int state = 0;
  for (size_t i = 0; i < utf8.size();) {
    const uint32_t c = ReadUtf8(utf8, &i);
    const std::vector<Edge>& edges = states_[state].edges;
    auto after =
        std::upper_bound(edges.begin(), edges.end(), c,
                         [](uint32_t value, const Edge& edge) { return value < edge.range.first; });
    if (after == edges.begin() || std::prev(after)->range.last < c) return false;
    state = std::prev(after)->target;
  }
  return states_[state].accepts;
}

CharDfa CharDfa::Complement() const {
  std::vector<State> states(states_.size() + 1);
  const int dead = static_cast<int>(states_.size());
  for (int s = 0; s < dead; ++s) {
    states[s].accepts = !states_[s].accepts;
    uint32_t next = 0;
    const auto fill = [&](uint32_t first, uint32_t last) {
      for (const CodeRange& range : WithoutSurrogates({first, last})) {
        AppendEdge(states[s].edges, range, dead);
      }
    };
    for (const Edge& edge : states_[s].edges) {
      if (edge.range.first > next) fill(next, edge.range.first - 1);
      AppendEdge(states[s].edges, edge.range, edge.target);
      next = edge.range.last + 1;
    }
    if (next <= kCodePointMax) fill(next, kCodePointMax);
  }
  states[dead].accepts = true;
  for (const CodeRange& range : CharSet::All().ranges())
    states[dead].edges.push_back({range, dead});
  return CharDfa(std::move(states));
}

Result<CharDfa> CharDfa::Intersect(const CharDfa& a, const CharDfa& b, int64_t limit) {
  if (a.states_.empty() || b.states_.empty()) return CharDfa(std::vector<State>{});
  absl::flat_hash_map<uint64_t, int> ids;
  std::vector<std::pair<int, int>> pairs;
  const auto id_of = [&](int x, int y) {
    auto [found, added] =
        ids.emplace(uint64_t{static_cast<uint32_t>(x)} << 32 | static_cast<uint32_t>(y),
                    static_cast<int>(pairs.size()));
    if (added) pairs.emplace_back(x, y);
    return found->second;
  };
  id_of(0, 0);
  std::vector<State> states;
  for (size_t i = 0; i < pairs.size(); ++i) {
    if (static_cast<int64_t>(pairs.size()) > limit) return TooManyStates(limit);
    const auto [x, y] = pairs[i];
    const State& left = a.states_[x];
    const State& right = b.states_[y];
    State state{.accepts = left.accepts && right.accepts};
    for (size_t p = 0, q = 0; p < left.edges.size() && q < right.edges.size();) {
      const CodeRange u = left.edges[p].range, v = right.edges[q].range;
      const CodeRange common = {std::max(u.first, v.first), std::min(u.last, v.last)};
      if (common.first <= common.last) {
        AppendEdge(state.edges, common, id_of(left.edges[p].target, right.edges[q].target));
      }
      if (u.last < v.last) {
        ++p;
      } else {
        ++q;
      }
    }
    states.push_back(std::move(state));
  }
  return CharDfa(std::move(states)).WithoutDeadStates();
}

CharDfa CharDfa::WithoutDeadStates() const {
  const std::vector<bool> alive = CoAccessible(states_);
  if (states_.empty() || !alive[0]) return CharDfa(std::vector<State>{});
  std::vector<int> renamed(states_.size(), -1);
  int count = 0;
  for (size_t s = 0; s < states_.size(); ++s) {
    if (alive[s]) renamed[s] = count++;
  }
  std::vector<State> states(count);
  for (size_t s = 0; s < states_.size(); ++s) {
    if (!alive[s]) continue;
    states[renamed[s]].accepts = states_[s].accepts;
    for (const Edge& edge : states_[s].edges) {
      if (alive[edge.target]) {
        AppendEdge(states[renamed[s]].edges, edge.range, renamed[edge.target]);
      }
    }
  }
  return CharDfa(std::move(states));
}

Result<CharDfa> CharNfa::Determinize(int64_t limit) const {
  std::map<std::vector<int>, int> ids;
  std::vector<std::vector<int>> sets;
  std::vector<int> mark(states.size(), -1);
  int round = 0;
  const auto close = [&](std::vector<int> open) {
    ++round;
    std::vector<int> set;
    for (int state : open) mark[state] = round;
    while (!open.empty()) {
      const int state = open.back();
      open.pop_back();
      set.push_back(state);
      for (int target : states[state].empty) {
        if (mark[target] == round) continue;
        mark[target] = round;
        open.push_back(target);
      }
    }
    std::sort(set.begin(), set.end());
    return set;
  };
  const auto id_of = [&](std::vector<int> set) {
    auto [found, added] = ids.emplace(std::move(set), static_cast<int>(sets.size()));
    if (added) sets.push_back(found->first);
    return found->second;
  };
  id_of(close({start}));
  std::vector<CharDfa::State> result;
  int64_t work = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    const std::vector<int> set = sets[i];
    CharDfa::State state;
    std::vector<uint32_t> cuts;  // where the set of reached states may change
    std::vector<Edge> edges;
    for (int member : set) {
      state.accepts |= member == end;
      for (const Edge& edge : states[member].edges) {
        edges.push_back(edge);
        cuts.push_back(edge.range.first);
        cuts.push_back(edge.range.last + 1);
      }
    }
    work += static_cast<int64_t>(edges.size() + set.size());
    if (static_cast<int64_t>(sets.size()) > limit || work > 100 * limit) {
      return TooManyStates(limit);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::sort(edges.begin(), edges.end(),
              [](const Edge& a, const Edge& b) { return a.range < b.range; });
    std::vector<Edge> live;  // edges that cover the present interval
    size_t next = 0;
    for (size_t c = 0; c + 1 < cuts.size(); ++c) {
      std::erase_if(live, [&](const Edge& edge) { return edge.range.last < cuts[c]; });
      while (next < edges.size() && edges[next].range.first <= cuts[c])
        live.push_back(edges[next++]);
      if (live.empty()) continue;
      std::vector<int> targets;
      for (const Edge& edge : live) targets.push_back(edge.target);
      std::sort(targets.begin(), targets.end());
      targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
      work += static_cast<int64_t>(targets.size());
      AppendEdge(state.edges, {cuts[c], cuts[c + 1] - 1}, id_of(close(std::move(targets))));
    }
    result.push_back(std::move(state));
  }
  return CharDfa(std::move(result)).WithoutDeadStates();
}

}  // namespace staffel::grammar
