#include "text/special_matcher.h"

#include <algorithm>
#include <utility>

namespace staffel {

ControlWindow ControlWindow::Outside(std::vector<ByteRange> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const ByteRange& a, const ByteRange& b) { return a.begin < b.begin; });
  std::vector<ByteRange> disjoint;
  for (const ByteRange& range : ranges) {
    if (range.begin >= range.end) continue;
    if (!disjoint.empty() && range.begin <= disjoint.back().end) {
      disjoint.back().end = std::max(disjoint.back().end, range.end);
    } else {
      disjoint.push_back(range);
    }
  }
  return ControlWindow(std::move(disjoint), SIZE_MAX);
}

size_t ControlWindow::End(size_t position) {
  while (next_ < ranges_.size() && ranges_[next_].end <= position) next_++;
  if (next_ == ranges_.size()) return end_;
  return ranges_[next_].begin <= position ? 0 : ranges_[next_].begin;
}

int32_t SpecialMatcher::Child(int32_t node, char byte) const {
  const auto it = edges_.find(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte));
  return it == edges_.end() ? -1 : it->second;
}

void SpecialMatcher::Add(std::string_view text, TokenId token, bool control) {
  if (text.empty()) return;
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  int32_t node = 0;
  for (const char byte : text) {
    const auto [it, added] =
        edges_.try_emplace(static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(byte),
                           static_cast<int32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = it->second;
  }
  if (nodes_[node].token < 0) nodes_[node] = {token, control};
}

std::optional<SpecialMatch> SpecialMatcher::Find(std::string_view text, size_t from,
                                                 ControlWindow* window) const {
  for (size_t begin = from; begin < text.size(); begin++) {
    if (!first_bytes_[static_cast<uint8_t>(text[begin])]) continue;
    const size_t control_end = window->End(begin);
    std::optional<SpecialMatch> longest;
    int32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      node = Child(node, text[end++]);
      if (node < 0) break;
      const Node& found = nodes_[node];
      if (found.token < 0 || (found.control && end > control_end)) continue;
      longest = SpecialMatch{begin, end, found.token};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace staffel
