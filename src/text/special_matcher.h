// Finds the tokens that are recognised in a text before it is tokenized: control tokens where they
// are allowed, user-defined tokens everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "staffel/ids.h"
#include "staffel/tokenizer.h"

namespace staffel {

// Where control tokens are allowed. Asked for ascending positions.
class ControlWindow {
 public:
  // Nowhere, or anywhere.
  static ControlWindow None() { return ControlWindow({}, 0); }
  static ControlWindow All() { return ControlWindow({}, SIZE_MAX); }
  // Outside of the ranges. Ranges need not be sorted and may overlap; empty ones contain nothing.
  static ControlWindow Outside(std::vector<ByteRange> ranges);

  // A control token that starts at `position` may end at this byte at the latest; 0: none may
  // start.
  size_t End(size_t position);

 private:
  ControlWindow(std::vector<ByteRange> ranges, size_t end)
      : ranges_(std::move(ranges)), end_(end) {}

  std::vector<ByteRange> ranges_;  // ascending, disjoint, not empty
  size_t end_;                     // after the last range
  size_t next_ = 0;                // first range that ends after the position asked for
};

struct SpecialMatch {
  size_t begin = 0, end = 0;
  TokenId token = -1;
};

// Immutable after construction, used from any thread.
class SpecialMatcher {
 public:
  // Texts are those of the vocabulary; an empty one is passed over, and of two equal ones the first
  // stays.
  void Add(std::string_view text, TokenId token, bool control);

  // The first match at or after `from`, the longest one that is allowed there. Each byte is looked
  // at at most as often as the longest token has bytes.
  std::optional<SpecialMatch> Find(std::string_view text, size_t from, ControlWindow* window) const;

 private:
  struct Node {
    TokenId token = -1;
    bool control = false;
  };
  int32_t Child(int32_t node, char byte) const;

  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::array<bool, 256> first_bytes_ = {};
  absl::flat_hash_map<uint64_t, int32_t> edges_;  // node << 8 | byte
};

}  // namespace staffel
