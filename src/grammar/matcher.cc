#include "grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/strings.h"

namespace staffel::grammar {

Matcher::Matcher(std::shared_ptr<Automaton> automaton) : automaton_(std::move(automaton)) {
  absl::MutexLock lock(&automaton_->mutex_);
  table_ = automaton_->Current();
  state_ = table_->start();
}

void Matcher::Refresh() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  std::shared_ptr<StateTable> current = automaton_->Current();
  if (current == table_) return;
  state_ = current->Import(*table_, state_);
  for (Place& place : history_) place.state = current->Import(*table_, place.state);
  table_ = std::move(current);
}

bool Matcher::Step(std::string_view bytes) {
  StateTable::State state = state_;
  for (char c : bytes) {
    if (state == StateTable::kDead) return false;
    state = table_->Next(state, static_cast<uint8_t>(c));
  }
  if (state == StateTable::kDead) return false;
  if (history_.size() == 2 * kRollbackMax) {
    history_.erase(history_.begin(), history_.begin() + kRollbackMax);
  }
  history_.push_back({state_, finished_});
  state_ = state;
  return true;
}

Status Matcher::Accept(TokenId token) {
  const Vocabulary& vocabulary = automaton_->vocabulary();
  absl::MutexLock lock(&automaton_->mutex_);
  Refresh();
  const bool known = token >= 0 && token < vocabulary.size();
  const bool ends = known && vocabulary.IsEnd(token);
  bool allowed = false;
  if (ends) {
    allowed = (finished_ || (state_ != StateTable::kDead && table_->complete(state_))) && Step("");
    if (allowed) finished_ = true;
  } else if (known && !finished_ && !vocabulary.bytes(token).empty()) {
    allowed = Step(vocabulary.bytes(token));
  }
  if (allowed) return absl::OkStatus();
  return absl::InvalidArgumentError(StrCat("the grammar does not allow token ", token, " here"));
}

Status Matcher::AcceptBytes(std::string_view bytes) {
  absl::MutexLock lock(&automaton_->mutex_);
  Refresh();
  if (!finished_ && Step(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError("the grammar does not allow this text here");
}

std::shared_ptr<const TokenMask> Matcher::Mask() {
  if (finished_) return nullptr;
  absl::MutexLock lock(&automaton_->mutex_);
  Refresh();
  if (state_ != StateTable::kDead) return table_->Mask(state_);
  auto nothing = std::make_shared<TokenMask>();
  nothing->words.resize(automaton_->vocabulary().mask_words());
  return nothing;
}

int Matcher::FillMask(absl::Span<MaskWord> mask) {
  const Vocabulary& vocabulary = automaton_->vocabulary();
  STAFFEL_CHECK_EQ(mask.size(), static_cast<size_t>(vocabulary.mask_words()));
  if (const std::shared_ptr<const TokenMask> known = Mask()) {
    std::copy(known->words.begin(), known->words.end(), mask.begin());
    return known->count;
  }
  std::fill(mask.begin(), mask.end(), 0);
  for (TokenId token : vocabulary.end_tokens()) mask[token / 32] |= MaskWord{1} << (token % 32);
  return static_cast<int>(vocabulary.end_tokens().size());
}

bool Matcher::IsComplete() {
  if (finished_) return true;
  absl::MutexLock lock(&automaton_->mutex_);
  return state_ != StateTable::kDead && table_->complete(state_);
}

std::string Matcher::ForcedBytes(size_t limit) {
  std::string forced;
  if (finished_) return forced;
  absl::MutexLock lock(&automaton_->mutex_);
  Refresh();
  for (StateTable::State state = state_; state != StateTable::kDead && forced.size() < limit;) {
    const int byte = table_->ForcedByte(state);
    if (byte < 0) break;
    forced += static_cast<char>(byte);
    state = table_->Next(state, static_cast<uint8_t>(byte));
  }
  return forced;
}

void Matcher::Rollback(int count) {
  STAFFEL_CHECK(count >= 0 && count <= rollback_count());
  if (count == 0) return;
  const Place place = history_[history_.size() - count];
  history_.resize(history_.size() - count);
  state_ = place.state;
  finished_ = place.finished;
}

}  // namespace staffel::grammar
