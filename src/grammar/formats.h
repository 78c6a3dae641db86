// The formats of JSON Schema (Validation, section 7.3) as regular expressions, ours, over the text
// of the string. Each accepts valid texts only; where the standard is wider than what is useful
// (leap seconds, comments in addresses), less than all of them.
#pragma once

#include <optional>
#include <string_view>

namespace staffel::grammar {

// A pattern that the whole string must match (regex.h); "" for a format that says nothing about
// text ("password"). nullopt: not known.
std::optional<std::string_view> FormatPattern(std::string_view format);

}  // namespace staffel::grammar
