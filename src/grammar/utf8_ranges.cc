#include "grammar/utf8_ranges.h"

#include <algorithm>
#include <string>

namespace staffel::grammar {
namespace {

// [first, last] have UTF-8 forms of the same size. Splits until all but a leading run of equal
// bytes and one range are full continuations.
void Split(uint32_t first, uint32_t last, int size, std::vector<std::vector<ByteSpan>>& out) {
  for (int i = 1; i < size; ++i) {
    const uint32_t mask = (1u << (6 * i)) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      Split(first, first | mask, size, out);
      Split((first | mask) + 1, last, size, out);
      return;
    }
    if ((last & mask) != mask) {
      Split(first, (last & ~mask) - 1, size, out);
      Split(last & ~mask, last, size, out);
      return;
    }
  }
  std::string low, high;
  AppendUtf8(low, first);
  AppendUtf8(high, last);
  std::vector<ByteSpan> sequence;
  for (size_t i = 0; i < low.size(); ++i) {
    sequence.push_back({static_cast<uint8_t>(low[i]), static_cast<uint8_t>(high[i])});
  }
  out.push_back(std::move(sequence));
}

}  // namespace

std::vector<std::vector<ByteSpan>> Utf8Ranges(const CharSet& set) {
  constexpr std::array<uint32_t, 4> kLastOfSize = {0x7F, 0x7FF, 0xFFFF, kCodePointMax};
  std::vector<std::vector<ByteSpan>> out;
  for (const CodeRange& range : set.ranges()) {
    uint32_t first = range.first;
    for (int size = 1; size <= 4 && first <= range.last; ++size) {
      if (first > kLastOfSize[size - 1]) continue;
      const uint32_t last = std::min(range.last, kLastOfSize[size - 1]);
      Split(first, last, size, out);
      first = last + 1;
    }
  }
  return out;
}

}  // namespace staffel::grammar
