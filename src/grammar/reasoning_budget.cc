#include "grammar/reasoning_budget.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace staffel::grammar {
namespace {

class AnySequence final : public SequenceGrammar {
 public:
  explicit AnySequence(const Vocabulary& vocabulary) : mask_(std::make_shared<TokenMask>()) {
    mask_->words.resize(vocabulary.mask_words());
    for (TokenId token = 0; token < vocabulary.size(); ++token)
      mask_->words[token / 32] |= MaskWord{1} << (token % 32);
    mask_->count = vocabulary.size();
  }
  std::shared_ptr<const TokenMask> Mask() override { return mask_; }
  absl::Span<const TokenId> Forced() const override { return {}; }
  Status Append(TokenId) override { return absl::OkStatus(); }

 private:
  std::shared_ptr<TokenMask> mask_;
};

// Where in the text reasoning is, byte by byte.
class ReasoningPlace {
 public:
  ReasoningPlace(std::string begin, std::string end, bool open)
      : begin_(std::move(begin)),
        end_(std::move(end)),
        state_(open ? State::kIn : State::kBefore) {}

  bool inside() const { return state_ == State::kIn; }
  bool at_character() const { return continuations_ == 0; }
  // What is missing of the end marker.
  std::string_view Missing() const {
    size_t known = std::min(tail_.size(), end_.size() - 1);
    while (known > 0 && !std::string_view(tail_).ends_with(std::string_view(end_).substr(0, known)))
      --known;
    return std::string_view(end_).substr(known);
  }

  void Read(std::string_view bytes) {
    for (char c : bytes) Read(c);
  }

 private:
  enum class State : uint8_t { kBefore, kIn, kOver };

  void Read(char c) {
    const uint8_t byte = static_cast<uint8_t>(c);
    if (byte >= 0xC2 && byte < 0xF5) {
      continuations_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    } else {
      continuations_ = byte >= 0x80 && byte < 0xC0 ? std::max(0, continuations_ - 1) : 0;
    }
    if (state_ == State::kOver) return;
    const bool space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    if (state_ == State::kBefore && tail_.empty() && space) return;
    tail_ += c;
    if (state_ == State::kBefore) {
      if (!std::string_view(begin_).starts_with(tail_)) state_ = State::kOver;
      if (tail_ == begin_) Enter(State::kIn);
      return;
    }
    if (tail_.ends_with(end_)) return Enter(begin_.empty() ? State::kOver : State::kBefore);
    if (tail_.size() > 2 * end_.size()) tail_.erase(0, tail_.size() - end_.size());
  }
  void Enter(State state) {
    state_ = state;
    tail_.clear();
  }

  const std::string begin_, end_;
  State state_;
  std::string tail_;  // kBefore: all but white space; kIn: the last bytes, end_.size() at least
  int continuations_ = 0;  // bytes that the last character lacks
};

class BudgetedSequence final : public SequenceGrammar {
 public:
  BudgetedSequence(std::unique_ptr<SequenceGrammar> inner,
                   std::shared_ptr<const Vocabulary> vocabulary, const GrammarSpec& spec)
      : inner_(std::move(inner)),
        vocabulary_(std::move(vocabulary)),
        place_(spec.reasoning_begin, spec.reasoning_end, spec.reasoning_open),
        left_(spec.reasoning_tokens_max) {}

  std::shared_ptr<const TokenMask> Mask() override {
    std::shared_ptr<const TokenMask> mask = inner_->Mask();
    if (left_ > 0 || !place_.inside() || !place_.at_character()) return mask;
    const TokenId token = LongestToken(place_.Missing());
    const bool allowed = token >= 0 && (mask->words[token / 32] >> (token % 32) & 1) != 0;
    if (!allowed) return mask;
    auto only = std::make_shared<TokenMask>();
    only->words.resize(vocabulary_->mask_words());
    only->words[token / 32] = MaskWord{1} << (token % 32);
    only->count = 1;
    only->only = token;
    return only;
  }

  absl::Span<const TokenId> Forced() const override { return inner_->Forced(); }

  Status Append(TokenId token) override {
    if (place_.inside() && left_ > 0) --left_;
    if (token >= 0 && token < vocabulary_->size()) place_.Read(vocabulary_->bytes(token));
    return inner_->Append(token);
  }

 private:
  // The longest token that `text` begins with; -1: none. A walk of all of them, a few times an
  // answer.
  TokenId LongestToken(std::string_view text) const {
    TokenId best = -1;
    size_t best_size = 0;
    for (TokenId token = 0; token < vocabulary_->size(); ++token) {
      const std::string_view bytes = vocabulary_->bytes(token);
      if (bytes.size() <= best_size || !text.starts_with(bytes)) continue;
      best = token;
      best_size = bytes.size();
    }
    return best;
  }

  const std::unique_ptr<SequenceGrammar> inner_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  ReasoningPlace place_;
  int left_;  // tokens
};

}  // namespace

std::unique_ptr<SequenceGrammar> AnyTokens(const Vocabulary& vocabulary) {
  return std::make_unique<AnySequence>(vocabulary);
}

std::unique_ptr<SequenceGrammar> WithReasoningBudget(std::unique_ptr<SequenceGrammar> inner,
                                                     std::shared_ptr<const Vocabulary> vocabulary,
                                                     const GrammarSpec& spec) {
  if (spec.reasoning_tokens_max < 0 || spec.reasoning_end.empty()) return inner;
  return std::make_unique<BudgetedSequence>(std::move(inner), std::move(vocabulary), spec);
}

}  // namespace staffel::grammar
