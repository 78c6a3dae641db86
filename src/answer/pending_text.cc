#include "answer/pending_text.h"

#include <algorithm>

namespace staffel::answer {

bool PendingText::IsHidden(size_t offset) const {
  const size_t at = dropped_ + offset;
  return std::any_of(hidden_.begin(), hidden_.end(),
                     [&](const auto& range) { return range.first == at; });
}

void PendingText::Drop(size_t count) {
  begin_ += count;
  dropped_ += count;
  while (!hidden_.empty() && hidden_.front().second <= dropped_) hidden_.pop_front();
  if (begin_ == bytes_.size() || (begin_ > 4096 && begin_ > bytes_.size() / 2)) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
}

std::string PendingText::Take(size_t count) {
  const std::string_view taken = view().substr(0, count);
  std::string out;
  size_t from = 0;
  for (const auto& [begin, end] : hidden_) {
    const size_t first = std::min(std::max(begin, dropped_) - dropped_, count);
    const size_t last = std::min(std::max(end, dropped_) - dropped_, count);
    out += taken.substr(from, first - from);
    from = last;
  }
  out += taken.substr(from);
  Drop(count);
  return out;
}

}  // namespace staffel::answer
