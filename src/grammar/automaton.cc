#include "grammar/automaton.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace staffel::grammar {
namespace {

// Up to here a list is searched faster than a hash set is kept.
constexpr size_t kLinearMax = 12;

uint64_t Pack(int32_t a, int32_t b) {
  return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
}

}  // namespace

StateTable::StateTable(std::shared_ptr<const Grammar> grammar,
                       std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      network_(grammar_->network()),
      byte_class_(network_.byte_class),
      classes_(network_.class_byte.size()),
      path_(vocabulary_->depth_max() + 1) {
  for (size_t c = 0; c < classes_; ++c) {
    const uint8_t byte = network_.class_byte[c];
    if (byte < 0x80 && BeginsJsonChar(byte))
      plain_ascii_classes_.push_back(static_cast<uint8_t>(c));
  }
  reached_.clear();
  Reach(network_.rule_start[network_.root], kNoStack);
  start_ = Close() ? Intern() : kDead;
}

int32_t StateTable::Push(StateId resume, int32_t below) {
  auto [found, added] =
      frame_ids_.emplace(Pack(resume, below), static_cast<int32_t>(frames_.size()));
  if (added) frames_.push_back({resume, below});
  return found->second;
}

void StateTable::Reach(StateId state, int32_t stack) {
  const Configuration configuration = {state, stack};
  if (reached_.size() < kLinearMax) {
    if (std::find(reached_.begin(), reached_.end(), configuration) != reached_.end()) return;
  } else {
    if (reached_.size() == kLinearMax) {
      reached_set_.clear();
      for (const Configuration& known : reached_) {
        reached_set_.insert(Pack(known.state, known.stack));
      }
    }
    if (!reached_set_.insert(Pack(state, stack)).second) return;
  }
  reached_.push_back(configuration);
}

// From reached_ to closed_: the configurations that read a byte, and whether the text may end.
// False when there are more than the limit: the text then counts as refused.
bool StateTable::Close() {
  closed_.clear();
  complete_ = false;
  const size_t reached_max = 4 * static_cast<size_t>(grammar_->limits().configurations);
  for (size_t i = 0; i < reached_.size(); ++i) {
    if (reached_.size() > reached_max) return false;
    const auto [state, stack] = reached_[i];
    if (network_.flags[state] & Network::kEnd) {
      if (stack == kNoStack) {
        complete_ = true;
      } else {
        const Frame frame = frames_[stack];
        Reach(frame.resume, frame.below);
      }
      continue;
    }
    if (!network_.bytes_of(state).empty()) closed_.push_back(reached_[i]);
    for (StateId target : network_.empties_of(state)) Reach(target, stack);
    for (const Network::Call& call : network_.calls_of(state)) {
      const bool returns_to_end = network_.flags[call.target] & Network::kEnd;
      Reach(network_.rule_start[call.rule], returns_to_end ? stack : Push(call.target, stack));
    }
  }
  if (closed_.size() > static_cast<size_t>(grammar_->limits().configurations)) return false;
  std::sort(closed_.begin(), closed_.end());
  return true;
}

StateTable::PlainKind StateTable::PlainKindOf() const {
  bool any = false;
  for (const Configuration& configuration : closed_) {
    const uint8_t flags = network_.flags[configuration.state];
    if (flags & Network::kReadsJsonChar) return PlainKind::kSome;
    any |= (flags & Network::kAnyJsonChar) != 0;
  }
  return any ? PlainKind::kAll : PlainKind::kNone;
}

StateTable::State StateTable::Intern() {
  if (closed_.empty() && !complete_) return kDead;
  uint64_t hash = complete_ ? 0x9e3779b97f4a7c15u : 0;
  for (const auto& [state, stack] : closed_) {
    hash = (hash ^ Pack(state, stack)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  auto [found, added] = by_hash_.emplace(hash, kDead);
  for (State state = found->second; state != kDead; state = states_[state].next_same_hash) {
    if (states_[state].complete == complete_ &&
        std::equal(of(state).begin(), of(state).end(), closed_.begin(), closed_.end())) {
      return state;
    }
  }
  const State state = static_cast<State>(states_.size());
  states_.push_back({static_cast<uint32_t>(configurations_.size()),
                     static_cast<uint32_t>(closed_.size()), found->second, PlainKindOf(), complete_,
                     nullptr});
  found->second = state;
  configurations_.insert(configurations_.end(), closed_.begin(), closed_.end());
  rows_.resize(rows_.size() + classes_, kUnknown);
  return state;
}

StateTable::State StateTable::Compute(State state, uint8_t byte) {
  reached_.clear();
  for (const Configuration& configuration : of(state)) {
    for (const Network::ByteEdge& edge : network_.bytes_of(configuration.state)) {
      if (edge.low <= byte && byte <= edge.high) Reach(edge.target, configuration.stack);
    }
  }
  const State target = !reached_.empty() && Close() ? Intern() : kDead;
  int32_t* row = rows_.data() + static_cast<size_t>(state) * classes_;
  row[byte_class_[byte]] = target;
  if (byte < 0x80 && states_[state].plain == PlainKind::kAll && BeginsJsonChar(byte)) {
    for (uint8_t c : plain_ascii_classes_) row[c] = target;
  }
  return target;
}

int StateTable::ForcedByte(State state) const {
  if (states_[state].complete) return -1;
  int forced = -1;
  for (const Configuration& configuration : of(state)) {
    for (const Network::ByteEdge& edge : network_.bytes_of(configuration.state)) {
      if (edge.low != edge.high || (forced >= 0 && forced != edge.low)) return -1;
      forced = edge.low;
    }
  }
  return forced;
}

// How many plain characters, whichever they are, may follow: up to kPlainCharsMax. *exact: and not
// one more; else the state does not treat plain characters alike, and nothing is known.
int StateTable::PlainRun(State state, bool* exact) {
  *exact = true;
  for (int count = 0; count < Vocabulary::kPlainCharsMax; ++count) {
    switch (states_[state].plain) {
      case PlainKind::kNone:
        return count;
      case PlainKind::kSome:
        *exact = false;
        return count;
      case PlainKind::kAll:
        break;
    }
    const State next = Next(state, 'a');
    if (next == state) break;
    if (next == kDead) return count;  // beyond a limit; a state that reads 'a' has a successor
    state = next;
  }
  return Vocabulary::kPlainCharsMax;
}

void StateTable::Walk(const std::vector<Vocabulary::Node>& trie, State state,
                      std::vector<MaskWord>& words) {
  State* path = path_.data();
  path[0] = state;
  const Vocabulary::Node* nodes = trie.data();
  for (size_t i = 0; i < trie.size();) {
    const Vocabulary::Node node = nodes[i];
    const State next = Next(path[node.depth - 1], node.byte);
    if (next == kDead) {
      i = node.skip;
      continue;
    }
    path[node.depth] = next;
    if (node.token >= 0) words[node.token >> 5] |= MaskWord{1} << (node.token & 31);
    ++i;
  }
}

std::shared_ptr<const TokenMask> StateTable::Mask(State state) {
  if (states_[state].mask != nullptr) return states_[state].mask;
  auto mask = std::make_shared<TokenMask>();
  bool exact = false;
  const int run = PlainRun(state, &exact);
  if (exact) {
    const absl::Span<const MaskWord> plain = vocabulary_->PlainUpTo(run);
    mask->words.assign(plain.begin(), plain.end());
  } else {
    mask->words.resize(vocabulary_->mask_words());
    Walk(vocabulary_->plain_trie(), state, mask->words);
  }
  Walk(vocabulary_->other_trie(), state, mask->words);
  const auto set = [&](TokenId token) { mask->words[token >> 5] |= MaskWord{1} << (token & 31); };
  for (const auto& [known, further] : vocabulary_->duplicates()) {
    if (mask->words[known >> 5] >> (known & 31) & 1) set(further);
  }
  if (states_[state].complete) {
    for (TokenId token : vocabulary_->end_tokens()) set(token);
  }
  for (size_t w = 0; w < mask->words.size(); ++w) {
    if (mask->words[w] == 0) continue;
    mask->count += std::popcount(mask->words[w]);
    mask->only = static_cast<TokenId>(32 * w) + std::countr_zero(mask->words[w]);
  }
  if (mask->count != 1) mask->only = -1;
  mask_bytes_ += mask->words.size() * sizeof(MaskWord) + sizeof(TokenMask);
  states_[state].mask = mask;
  return mask;
}

StateTable::State StateTable::Import(const StateTable& other, State state) {
  if (state == kDead) return kDead;
  std::vector<Frame> chain;
  closed_.clear();
  for (const Configuration& configuration : other.of(state)) {
    chain.clear();
    for (int32_t f = configuration.stack; f != kNoStack; f = other.frames_[f].below) {
      chain.push_back(other.frames_[f]);
    }
    int32_t stack = kNoStack;
    for (size_t i = chain.size(); i-- > 0;) stack = Push(chain[i].resume, stack);
    closed_.push_back({configuration.state, stack});
  }
  complete_ = other.states_[state].complete;
  std::sort(closed_.begin(), closed_.end());
  return Intern();
}

size_t StateTable::bytes() const {
  return rows_.size() * sizeof(rows_[0]) + states_.size() * (sizeof(Entry) + 24) +
         configurations_.size() * sizeof(Configuration) + frames_.size() * (sizeof(Frame) + 24) +
         mask_bytes_;
}

Automaton::Automaton(std::shared_ptr<const Grammar> grammar,
                     std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)),
      vocabulary_(std::move(vocabulary)),
      table_(std::make_shared<StateTable>(grammar_, vocabulary_)) {}

std::shared_ptr<StateTable> Automaton::Current() {
  if (table_->bytes() > grammar_->limits().cache_bytes) {
    table_ = std::make_shared<StateTable>(grammar_, vocabulary_);
  }
  return table_;
}

}  // namespace staffel::grammar
