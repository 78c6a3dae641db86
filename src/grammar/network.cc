#include "grammar/network.h"

#include <algorithm>
#include <bitset>
#include <limits>
#include <queue>
#include <utility>

#include "base/strings.h"
#include "grammar/network_builder.h"

namespace staffel::grammar {
namespace {

constexpr int64_t kInfinite = std::numeric_limits<int64_t>::max();

// Edges of each state's list, by counting.
struct Index {
  std::vector<uint32_t> begin;
  std::vector<uint32_t> edges;  // positions in the list of raw edges

  template <class KeyOf>
  Index(const std::vector<RawEdge>& raw, size_t keys, KeyOf key_of) : begin(keys + 1) {
    for (const RawEdge& edge : raw) {
      if (const int key = key_of(edge); key >= 0) ++begin[key + 1];
    }
    for (size_t k = 0; k < keys; ++k) begin[k + 1] += begin[k];
    edges.resize(begin[keys]);
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (size_t e = 0; e < raw.size(); ++e) {
      if (const int key = key_of(raw[e]); key >= 0) edges[next[key]++] = static_cast<uint32_t>(e);
    }
  }
  absl::Span<const uint32_t> of(int key) const {
    return {edges.data() + begin[key], begin[key + 1] - begin[key]};
  }
};

// Bytes of the shortest text from each state to the end of its rule, kInfinite where there is none:
// Knuth's "generalization of Dijkstra's algorithm" (1977). rule_distance[r] is that of r's start.
class Distances {
 public:
  explicit Distances(const NetworkBuilder& builder)
      : builder_(builder),
        into_(builder.edges, builder.flags.size(), [](const RawEdge& e) { return e.to; }),
        callers_(builder.edges, builder.rules.size(), [](const RawEdge& e) { return e.rule; }),
        state(builder.flags.size(), kInfinite),
        rule(builder.rules.size(), kInfinite) {
    std::vector<RuleId> rule_of_start(builder.flags.size(), -1);
    for (size_t r = 0; r < builder.rules.size(); ++r) {
      if (builder.rules[r].start < 0) continue;
      rule_of_start[builder.rules[r].start] = static_cast<RuleId>(r);
      Offer(builder.rules[r].end, 0);
    }
    while (!open_.empty()) {
      const auto [distance, s] = open_.top();
      open_.pop();
      if (distance > state[s]) continue;
      for (uint32_t e : into_.of(s)) Relax(builder_.edges[e]);
      const RuleId r = rule_of_start[s];
      if (r < 0 || rule[r] != kInfinite) continue;
      rule[r] = distance;
      for (uint32_t e : callers_.of(r)) Relax(builder_.edges[e]);
    }
  }

 private:
  void Offer(StateId s, int64_t distance) {
    if (distance >= state[s]) return;
    state[s] = distance;
    open_.emplace(distance, s);
  }
  void Relax(const RawEdge& edge) {
    const int64_t rest = state[edge.to];
    if (rest == kInfinite) return;
    const int64_t own = edge.kind == RawEdge::Kind::kBytes   ? 1
                        : edge.kind == RawEdge::Kind::kEmpty ? 0
                                                             : rule[edge.rule];
    if (own == kInfinite) return;
    Offer(edge.from, std::min(rest + own, kInfinite / 4));
  }

  const NetworkBuilder& builder_;
  Index into_, callers_;
  std::priority_queue<std::pair<int64_t, StateId>, std::vector<std::pair<int64_t, StateId>>,
                      std::greater<>>
      open_;

 public:
  std::vector<int64_t> state, rule;
};

// Rules that a rule may call before it has read a byte.
std::vector<std::vector<RuleId>> FirstCalls(const NetworkBuilder& builder, const Index& out,
                                            const Distances& distances) {
  std::vector<std::vector<RuleId>> first(builder.rules.size());
  std::vector<int> mark(builder.flags.size(), -1);
  std::vector<StateId> open;
  for (size_t r = 0; r < builder.rules.size(); ++r) {
    if (builder.rules[r].start < 0) continue;
    const auto reach = [&](StateId s) {
      if (mark[s] == static_cast<int>(r)) return;
      mark[s] = static_cast<int>(r);
      open.push_back(s);
    };
    reach(builder.rules[r].start);
    while (!open.empty()) {
      const StateId s = open.back();
      open.pop_back();
      for (uint32_t e : out.of(s)) {
        const RawEdge& edge = builder.edges[e];
        if (edge.kind == RawEdge::Kind::kEmpty) reach(edge.to);
        if (edge.kind != RawEdge::Kind::kCall) continue;
        first[r].push_back(edge.rule);
        if (distances.rule[edge.rule] == 0) reach(edge.to);
      }
    }
  }
  return first;
}

Status CheckLeftRecursion(const NetworkBuilder& builder,
                          const std::vector<std::vector<RuleId>>& first) {
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> color(first.size(), kNew);
  std::vector<std::pair<RuleId, size_t>> path;
  for (size_t root = 0; root < first.size(); ++root) {
    if (color[root] != kNew) continue;
    path.emplace_back(static_cast<RuleId>(root), 0);
    color[root] = kOpen;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == first[rule].size()) {
        color[rule] = kDone;
        path.pop_back();
        continue;
      }
      const RuleId callee = first[rule][next++];
      if (color[callee] == kOpen) {
        return absl::InvalidArgumentError(
            StrCat("the rule \"", builder.rules[callee].name,
                   "\" calls itself before it has read anything (left recursion); write it as a "
                   "repetition"));
      }
      if (color[callee] == kNew) {
        color[callee] = kOpen;
        path.emplace_back(callee, 0);
      }
    }
  }
  return absl::OkStatus();
}

// Where a state has one empty move and nothing else, its target stands for it.
std::vector<StateId> ShortCuts(const NetworkBuilder& builder, const Index& out) {
  const size_t count = builder.flags.size();
  std::vector<StateId> target(count);
  for (size_t s = 0; s < count; ++s) {
    target[s] = static_cast<StateId>(s);
    const auto edges = out.of(static_cast<int>(s));
    if (edges.size() != 1 || builder.flags[s] != 0) continue;
    const RawEdge& edge = builder.edges[edges[0]];
    if (edge.kind == RawEdge::Kind::kEmpty) target[s] = edge.to;
  }
  for (size_t s = 0; s < count; ++s) {  // follow chains; a circle of empty moves stays as it is
    StateId end = static_cast<StateId>(s);
    for (int hops = 0; hops < 64 && target[end] != end; ++hops) end = target[end];
    target[s] = end;
  }
  return target;
}

class Assembler {
 public:
  Assembler(const NetworkBuilder& builder, const std::vector<RawEdge>& edges)
      : out_(edges, builder.flags.size(), [](const RawEdge& e) { return e.from; }),
        cuts_(ShortCuts(builder, out_)),
        builder_(builder),
        edges_(edges) {}

  Network Run(RuleId root) {
    std::vector<StateId> renamed(builder_.flags.size(), -1);
    std::vector<StateId> order;
    const auto name = [&](StateId s) {
      s = cuts_[s];
      if (renamed[s] < 0) {
        renamed[s] = static_cast<StateId>(order.size());
        order.push_back(s);
      }
      return renamed[s];
    };
    std::vector<RuleId> rules(builder_.rules.size(), -1);
    const auto name_rule = [&](RuleId r) {
      if (rules[r] < 0) {
        rules[r] = static_cast<RuleId>(network_.rule_start.size());
        network_.rule_start.push_back(-1);
        network_.rule_start[rules[r]] = name(builder_.rules[r].start);
      }
      return rules[r];
    };
    network_.root = name_rule(root);
    for (size_t i = 0; i < order.size(); ++i) {
      network_.byte_begin.push_back(static_cast<uint32_t>(network_.bytes.size()));
      network_.empty_begin.push_back(static_cast<uint32_t>(network_.empties.size()));
      network_.call_begin.push_back(static_cast<uint32_t>(network_.calls.size()));
      network_.flags.push_back(builder_.flags[order[i]]);
      for (uint32_t e : out_.of(order[i])) {
        const RawEdge& edge = edges_[e];
        const StateId target = name(edge.to);
        if (edge.kind == RawEdge::Kind::kBytes) {
          network_.bytes.push_back({edge.low, edge.high, target});
        } else if (edge.kind == RawEdge::Kind::kCall) {
          network_.calls.push_back({name_rule(edge.rule), target});
        } else if (target != renamed[order[i]]) {
          network_.empties.push_back(target);
        }
      }
    }
    network_.byte_begin.push_back(static_cast<uint32_t>(network_.bytes.size()));
    network_.empty_begin.push_back(static_cast<uint32_t>(network_.empties.size()));
    network_.call_begin.push_back(static_cast<uint32_t>(network_.calls.size()));
    SetFlags();
    SetClasses();
    return std::move(network_);
  }

 private:
  void SetFlags() {
    for (StateId s = 0; s < network_.state_count(); ++s) {
      uint8_t& flags = network_.flags[s];
      if (flags & Network::kAnyJsonChar) continue;
      for (const Network::ByteEdge& edge : network_.bytes_of(s)) {
        for (int b = edge.low; b <= edge.high; ++b) {
          if (BeginsJsonChar(static_cast<uint8_t>(b))) flags |= Network::kReadsJsonChar;
        }
      }
    }
  }

  void SetClasses() {
    std::bitset<257> begins;
    begins[0] = true;
    for (const Network::ByteEdge& edge : network_.bytes) {
      begins[edge.low] = true;
      begins[edge.high + 1] = true;
    }
    // A character that may stand in a JSON string is told from others by its first byte alone, so
    // that whole runs of classes can be filled at once.
    for (int b = 1; b < 256; ++b) {
      if (BeginsJsonChar(static_cast<uint8_t>(b)) != BeginsJsonChar(static_cast<uint8_t>(b - 1))) {
        begins[b] = true;
      }
    }
    for (int b = 0; b < 256; ++b) {
      if (begins[b]) network_.class_byte.push_back(static_cast<uint8_t>(b));
      network_.byte_class[b] = static_cast<uint8_t>(network_.class_byte.size() - 1);
    }
  }

  Index out_;
  std::vector<StateId> cuts_;
  const NetworkBuilder& builder_;
  const std::vector<RawEdge>& edges_;
  Network network_;
};

}  // namespace

Result<Network> BuildNetwork(const ExprPool& pool, RuleId root) {
  NetworkBuilder builder(pool);
  STAFFEL_RETURN_IF_ERROR(builder.Run(root));
  const Distances distances(builder);
  // Left recursion first: a rule that is nothing else has no text either, and the better message is
  // this one.
  const Index out(builder.edges, builder.flags.size(), [](const RawEdge& e) { return e.from; });
  STAFFEL_RETURN_IF_ERROR(CheckLeftRecursion(builder, FirstCalls(builder, out, distances)));
  const int64_t shortest = distances.rule[root];
  if (shortest == kInfinite) {
    return absl::InvalidArgumentError("no text at all satisfies the grammar");
  }
  if (shortest > pool.limits().shortest_bytes) {
    return absl::InvalidArgumentError(StrCat("the shortest text that satisfies the grammar has ",
                                             shortest, " bytes; at most ",
                                             pool.limits().shortest_bytes, " are supported"));
  }
  std::erase_if(builder.edges, [&](const RawEdge& edge) {
    return distances.state[edge.to] == kInfinite ||
           (edge.kind == RawEdge::Kind::kCall && distances.rule[edge.rule] == kInfinite);
  });
  Network network = Assembler(builder, builder.edges).Run(root);
  network.shortest = shortest;
  return network;
}

}  // namespace staffel::grammar
