#include "grammar/char_set.h"

#include <algorithm>
#include <string>
#include <utility>

namespace staffel::grammar {
namespace {

constexpr CodeRange kSurrogates = {0xD800, 0xDFFF};

void AppendWithoutSurrogates(std::vector<CodeRange>& out, CodeRange range) {
  range.last = std::min(range.last, kCodePointMax);
  if (range.first > range.last) return;
  if (range.last < kSurrogates.first || range.first > kSurrogates.last) {
    out.push_back(range);
    return;
  }
  if (range.first < kSurrogates.first) out.push_back({range.first, kSurrogates.first - 1});
  if (range.last > kSurrogates.last) out.push_back({kSurrogates.last + 1, range.last});
}

}  // namespace

CharSet::CharSet(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> valid;
  valid.reserve(ranges.size() + 1);
  for (const CodeRange& range : ranges) AppendWithoutSurrogates(valid, range);
  std::sort(valid.begin(), valid.end());
  for (const CodeRange& range : valid) {
    if (!ranges_.empty() && range.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, range.last);
    } else {
      ranges_.push_back(range);
    }
  }
}

CharSet CharSet::All() { return CharSet({{0, kCodePointMax}}); }

CharSet CharSet::Of(std::string_view ascii) {
  std::vector<CodeRange> ranges;
  for (unsigned char c : ascii) ranges.push_back({c, c});
  return CharSet(std::move(ranges));
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<CodeRange> both = ranges_;
  both.insert(both.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(both));
}

CharSet CharSet::Intersect(const CharSet& other) const {
  CharSet result;
  size_t a = 0, b = 0;
  while (a < ranges_.size() && b < other.ranges_.size()) {
    const CodeRange x = ranges_[a], y = other.ranges_[b];
    const CodeRange common = {std::max(x.first, y.first), std::min(x.last, y.last)};
    if (common.first <= common.last) result.ranges_.push_back(common);
    if (x.last < y.last) {
      ++a;
    } else {
      ++b;
    }
  }
  return result;
}

CharSet CharSet::Complement() const {
  std::vector<CodeRange> gaps;
  uint32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) gaps.push_back({next, kCodePointMax});
  return CharSet(std::move(gaps));
}

bool CharSet::Contains(uint32_t code_point) const {
  auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code_point,
                       [](uint32_t value, const CodeRange& range) { return value < range.first; });
  return after != ranges_.begin() && std::prev(after)->last >= code_point;
}

void AppendUtf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

uint32_t ReadUtf8(std::string_view text, size_t* position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[*position + i]); };
  const uint8_t lead = byte(0);
  const int size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = size == 1 ? lead : lead & (0x7Fu >> size);
  for (int i = 1; i < size; ++i) value = value << 6 | (byte(i) & 0x3F);
  *position += size;
  return value;
}

}  // namespace staffel::grammar
