// Python's conversions between text and numbers, and its rounding.
#pragma once

#include <optional>
#include <string_view>

#include "text/jinja/value.h"

namespace staffel::jinja {

// int(text, base): spaces around, a sign, single underscores between digits, 0x/0o/0b as the base
// allows. Nothing if the text is no integer. Fails outside 64 bits.
std::optional<Wide> ParseInteger(std::string_view text, int64_t base);
// float(text), incl. "inf" and "nan".
std::optional<double> ParseFloat(std::string_view text);

// int(value): the fraction is dropped. Fails for infinities, NaN and what exceeds 64 bits.
Value TruncateToInteger(double value, bool content);
// round(value, precision): to even where two are as near; integers stay integers.
Value RoundHalfEven(const Value& value, int precision);

}  // namespace staffel::jinja
