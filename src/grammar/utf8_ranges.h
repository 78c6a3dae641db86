// Sets of code points as sequences of byte ranges: what an automaton over UTF-8 bytes has as edges
// (RFC 3629 section 4; the splitting is that of Thompson's and Cox's "utf8 ranges").
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "grammar/char_set.h"

namespace staffel::grammar {

struct ByteSpan {  // both ends belong to it
  uint8_t low = 0, high = 0;
  auto operator<=>(const ByteSpan&) const = default;
};

// The UTF-8 forms of the set's members, as the union of products of byte ranges. Sequences ascend,
// and two of them have first ranges that are equal or disjoint, and so on for what follows equals.
std::vector<std::vector<ByteSpan>> Utf8Ranges(const CharSet& set);

}  // namespace staffel::grammar
