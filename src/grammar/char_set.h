// Sets of Unicode code points as sorted ranges. Surrogates (U+D800..U+DFFF) are never members: they
// have no UTF-8 form. Values; no threads.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace staffel::grammar {

inline constexpr uint32_t kCodePointMax = 0x10FFFF;

struct CodeRange {  // both ends belong to it
  uint32_t first = 0, last = 0;
  auto operator<=>(const CodeRange&) const = default;
};

class CharSet {
 public:
  CharSet() = default;
  // Ranges in any order; they may overlap. What lies beyond U+10FFFF, and surrogates, fall away.
  explicit CharSet(std::vector<CodeRange> ranges);
  static CharSet All();
  static CharSet Of(std::string_view ascii);  // each byte a member
  static CharSet Range(uint32_t first, uint32_t last) { return CharSet({{first, last}}); }

  CharSet Union(const CharSet& other) const;
  CharSet Intersect(const CharSet& other) const;
  CharSet Complement() const;
  CharSet Minus(const CharSet& other) const { return Intersect(other.Complement()); }

  bool Contains(uint32_t code_point) const;
  bool ContainsAll(const CharSet& other) const { return Intersect(other) == other; }
  bool empty() const { return ranges_.empty(); }
  // Ascending, with gaps between them.
  const std::vector<CodeRange>& ranges() const& { return ranges_; }
  std::vector<CodeRange> ranges() && { return std::move(ranges_); }
  auto operator<=>(const CharSet&) const = default;

 private:
  std::vector<CodeRange> ranges_;
};

// The UTF-8 form of a code point that is not a surrogate.
void AppendUtf8(std::string& out, uint32_t code_point);

// Reads one code point of valid UTF-8 at *position and moves behind it. The caller has checked that
// the text is valid UTF-8 and that *position is below its size.
uint32_t ReadUtf8(std::string_view text, size_t* position);

}  // namespace staffel::grammar
