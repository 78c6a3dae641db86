// StrCat for std::string_view: Debian's Abseil has a string_view type of its own, to which ours
// does not convert.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>

namespace staffel {
namespace internal {

inline void AppendPiece(std::string& out, std::string_view piece) { out += piece; }
inline void AppendPiece(std::string& out, char piece) { out += piece; }

// A template, so that a pointer does not become a bool.
template <class Number>
requires(std::integral<Number> || std::floating_point<Number>) void AppendPiece(std::string& out,
                                                                                Number number) {
  if constexpr (std::same_as<Number, bool>) {
    out += number ? "true" : "false";
    return;
  } else {
    char buffer[64];
    auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, number);
    out.append(buffer, end);
  }
}

}  // namespace internal

// The pieces one after another: strings, characters, booleans, and numbers in their shortest exact
// form.
template <class... Pieces>
[[nodiscard]] std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (internal::AppendPiece(out, pieces), ...);
  return out;
}

template <class... Pieces>
void StrAppend(std::string& out, const Pieces&... pieces) {
  (internal::AppendPiece(out, pieces), ...);
}

}  // namespace staffel
